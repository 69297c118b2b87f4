"""The XYZ plot: axes that put a value on a copy of the generation."""

from modules import scripts


class AxisOption:
    def __init__(self, label, type, apply, choices=None) -> None:
        self.label, self.type, self.apply, self.choices = label, type, apply, choices


class Script(scripts.Script):
    """Chosen in a dropdown, not always on."""


axis_options = [AxisOption("Nothing", str, lambda p, x, xs: None)]
