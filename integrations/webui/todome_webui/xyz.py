"""The axes of the XYZ plot."""

from collections.abc import Callable
from typing import Any

from modules import scripts

from .settings import CONTROLS, DEFAULTS, PREFIX


def add_axes() -> None:
    plots = [data.module for data in scripts.scripts_data if data.script_class.__module__ == "xyz_grid.py"]
    for plot in plots:
        plot.axis_options.extend(axis(plot, name) for name in CONTROLS)


def axis(plot: Any, name: str) -> Any:
    kind = type(DEFAULTS[name])
    choices = ["True", "False"] if kind is bool else CONTROLS[name].limits.get("choices")
    offered = {"choices": lambda: choices} if choices else {}
    return plot.AxisOption(CONTROLS[name].axis, str if kind is bool else kind, put_on(name, kind), **offered)


def put_on(name: str, kind: type) -> Callable[[Any, Any, Any], None]:
    """Values of a plot go on the generation itself, where they win over all settings."""

    def put(p: Any, value: Any, values: Any) -> None:
        setattr(p, PREFIX + name, value == "True" if kind is bool else value)

    return put
