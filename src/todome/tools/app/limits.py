"""Limits on what the page draws, and checks of the values that it is sent. Nothing of it is left to the browser."""

import math
import unicodedata
from collections.abc import Sequence
from typing import Any

import torch

from ...errors import invalid_value
from ...levers.checks import is_number

SMALLEST, LARGEST = 64, 2**14  # pixels; a side of less is no picture
MOST_STEPS = 1000
SEEDS = 2**53  # beyond, the numbers of a browser lose their last digits
GUIDANCE = 30.0
PROMPT = 1000  # characters
PICTURES = 4  # seeds that are drawn in one run
UPLOAD = 4 * 10**6  # bytes of a picture to start from


def own_limits(device: torch.device) -> tuple[int, int]:
    """Pixels of a side and steps that suit a device: a CPU takes minutes for what a GPU draws in seconds."""
    return (512, 50) if device.type == "cpu" else (2048, 100)


def check_number(field: str, value: Any, least: float, most: float) -> float:
    """Returns a number, a whole one as int: 2 rather than 2.0, as a browser may send it."""
    if not is_number(value) or not math.isfinite(value) or not least <= value <= most:
        raise invalid_value(field, value, f"a number from {least:g} to {most:g}", "Choose another one")
    return int(value) if value == int(value) else float(value)


def check_whole(field: str, value: Any, least: int, most: int) -> int:
    if not is_number(value) or not math.isfinite(value) or value != int(value) or not least <= value <= most:
        raise invalid_value(field, value, f"a whole number from {least} to {most}", "Choose another one")
    return int(value)


def check_text(field: str, value: Any, most: int = PROMPT) -> str:
    readable = isinstance(value, str) and not any(map(is_control, value))
    if not readable or len(value) > most:
        shown = value if len(repr(value)) <= 60 else f"{str(value)[:40]}..."
        raise invalid_value(field, shown, f"a text of at most {most} characters that can be read", "Type another one")
    return value


def is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\r\t"


def check_choice(field: str, value: Any, choices: Sequence[Any]) -> Any:
    if value not in choices:
        raise invalid_value(field, value, f"one of {', '.join(map(str, choices))}", "Choose one of them")
    return value
