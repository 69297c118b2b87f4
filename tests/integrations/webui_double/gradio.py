"""As much of gradio as an extension of the webui touches when its controls are made."""

from typing import Any


class Component:
    def __init__(self, value: Any = None, label: str | None = None, visible: bool = True, **options: Any) -> None:
        self.value, self.label, self.visible = value, label, visible
        self.__dict__.update(options)
        self.changed: list[Any] = []  # what is called when a user changes it

    def change(self, call: Any, inputs: list[Any], outputs: list[Any], show_progress: str, queue: bool) -> None:
        self.changed.append(lambda: setattr(outputs[0], "value", call(*(given.value for given in inputs))))

    def set(self, value: Any) -> None:
        self.value = value
        for call in self.changed:
            call()


class HTML(Component):
    """Text on the page. In gradio 4 it says that it changed whenever anything does: who answers it never ends."""

    def change(self, *event: Any, **options: Any) -> None:
        raise RecursionError("the page asks again for as long as it is open")


Textbox = Slider = Checkbox = Dropdown = Radio = Component


class Accordion:
    def __init__(self, label: str, open: bool = True) -> None:
        self.label, self.open = label, open

    def __enter__(self) -> "Accordion":
        return self

    def __exit__(self, *error: object) -> None:
        pass
