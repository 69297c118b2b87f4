"""Functions that extensions register, called by name."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from modules import errors

registered: dict[str, list[Callable[..., None]]] = defaultdict(list)


def call(name: str, *args: Any) -> None:
    for function in registered[name]:
        try:
            function(*args)
        except Exception as error:
            errors.noted.append(error)


def registering(name: str) -> Callable[[Callable[..., None]], None]:
    return lambda function: registered[name].append(function)


on_ui_settings = registering("ui_settings")
on_before_ui = registering("before_ui")
on_infotext_pasted = registering("infotext_pasted")
on_cfg_denoiser = registering("cfg_denoiser")
