"""Limits on what visitors may ask for, and checks of the values they send. Nothing of it is left to the browser."""

import math
import unicodedata
from collections.abc import Container
from dataclasses import dataclass, fields
from typing import Any

import torch

from ...reductions import is_number

SMALLEST = 64  # pixels; a side of less is no picture
SEEDS = 2**53  # beyond, the numbers of a browser lose their last digits
GUIDANCE = 30.0


@dataclass(frozen=True)
class Limits:
    """The most that visitors can ask for, one by one and all together.

    side: Pixels on the longer side of a picture.
    steps: Steps of one picture.
    prompt: Characters of a prompt, and of a negative one.
    pictures: Seeds that are drawn in one run.
    upload: Bytes of a picture to start from.
    waiting: Runs that wait while another one is drawn.
    per_address: Runs from one address that wait or are drawn.
    runs: Runs that are kept for one visitor; the oldest make room.
    disk: Bytes of the pictures that are kept for all visitors; the oldest make room.
    minutes: Time that one tuning may take.
    sessions: Visitors whose history is kept; those who were away for longest are forgotten.
    """

    side: int = 512
    steps: int = 50
    prompt: int = 500
    pictures: int = 4
    upload: int = 4 * 10**6
    waiting: int = 8
    per_address: int = 3
    runs: int = 12
    disk: int = 500 * 10**6
    minutes: int = 10
    sessions: int = 200

    def __post_init__(self) -> None:
        least, most = {"side": SMALLEST, "waiting": 0}, {"disk": 10**15, "upload": 10**9}
        for field in fields(self):
            value = getattr(self, field.name)
            check_whole(field.name, value, least.get(field.name, 1), most.get(field.name, 2**20))


def default_limits(device: torch.device) -> Limits:
    """Limits that suit a device: a CPU takes minutes for what a GPU draws in seconds."""
    return Limits() if device.type == "cpu" else Limits(side=2048, steps=100)


def refused(field: str, value: Any, needed: str, remedy: str) -> ValueError:
    """Error about a value that a visitor sent, such as "Width 4096 does not work: it must be ... Try 512."."""
    quoted = value if len(repr(value)) <= 60 else f"{str(value)[:40]}..."
    return ValueError(f"{field[:1].upper()}{field[1:]} {quoted!r} does not work: it must be {needed}. {remedy}.")


def check_whole(field: str, value: Any, least: int, most: int) -> int:
    """Returns a whole number as int, also where a browser sent it as 2.0."""
    if not is_number(value) or not math.isfinite(value) or value != int(value) or not least <= value <= most:
        raise refused(field, value, f"a whole number from {least} to {most}", nearest_allowed(value, least, most))
    return int(value)


def check_number(field: str, value: Any, least: float, most: float) -> float:
    """Returns a number, a whole one as int: 2 rather than 2.0."""
    if not is_number(value) or not math.isfinite(value) or not least <= value <= most:
        raise refused(field, value, f"a number from {least:g} to {most:g}", nearest_allowed(value, least, most))
    return int(value) if value == int(value) else float(value)


def nearest_allowed(value: Any, least: float, most: float) -> str:
    if not is_number(value) or math.isnan(value):
        return "Write it in digits"
    return f"Try {round(min(max(value, least), most))}"


def check_text(field: str, value: Any, most: int) -> str:
    if not isinstance(value, str):
        raise refused(field, value, "a text", "Write it as words")
    if len(value) > most:
        raise refused(field, value, f"at most {most} characters long, and it has {len(value)}", "Shorten it")
    if any(unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\r\t" for character in value):
        raise refused(field, value, "made of characters that can be read", "Type it anew")
    return value


def check_choice(field: str, value: Any, choices: Container[str], named: str) -> str:
    if not isinstance(value, str) or value not in choices:
        raise refused(field, value, f"one of {named}", "Choose one of them")
    return value


def check_switch(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise refused(field, value, "on or off", "Set or clear the box")
    return value
