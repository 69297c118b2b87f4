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


def on_ui_settings(function: Callable[[], None]) -> None:
    registered["ui_settings"].append(function)


def on_before_ui(function: Callable[[], None]) -> None:
    registered["before_ui"].append(function)


def on_infotext_pasted(function: Callable[[str, dict[str, Any]], None]) -> None:
    registered["infotext_pasted"].append(function)


def on_cfg_denoiser(function: Callable[[Any], None]) -> None:
    registered["cfg_denoiser"].append(function)
