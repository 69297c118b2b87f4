"""What several commands take: help, and words as the values they mean."""

from functools import partial
from typing import Any

import typer

from ..pipelines import DTYPES, SCHEDULERS, Size

drawn = partial(typer.Option, rich_help_panel="What to draw")
placed = partial(typer.Option, rich_help_panel="Machine and files")


def by_default(what: object) -> str:
    return rf" [dim]\[default: {what}][/dim]"


OF_THE_MODEL = by_default("the model's")
SCHEDULER = f"One of {', '.join(SCHEDULERS)}." + OF_THE_MODEL
GUIDANCE = "How much the prompt counts." + OF_THE_MODEL
SIDES = "Of the pictures: a side, or WIDTHxHEIGHT."
METHODS = "todome, todome:2, todome:4,2, todo:2, tome:0.5, tomesd:0.5, ca-tome, deepcache:3, todome:2+deepcache."
USUAL_METHODS = METHODS + by_default("todome todo tome")
SUBJECT = "The folder of a pipeline, a hub id, or sd15, sd21, sdxl: UNets of these shapes with random weights."
DEVICE = "auto, cpu, cuda, mps, ..."
DTYPE = f"auto, {', '.join(DTYPES)}."


def present(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def parsed_size(text: str | None) -> Size | None:
    return None if text is None else size_in("--size", text)


def sides(texts: list[str] | None) -> list[Size] | None:
    """Sizes from words such as 512 and 768x512."""
    if texts is None:
        return None
    return [size_in("--sizes", f"{text}x{text}" if text.isdecimal() else text) for text in texts]


def size_in(option: str, text: str) -> Size:
    width, times, height = text.lower().partition("x")
    if not (times and width.isdecimal() and height.isdecimal()):
        raise typer.BadParameter(f"{text!r} is not WIDTHxHEIGHT, such as 256x192.", param_hint=option)
    return int(width), int(height)


def levels(option: str, given: list[str]) -> Any:
    """One number, or one for each level, or "auto"."""
    if given == ["auto"] and option == "--factor":
        return "auto"
    texts = ",".join(given).split(",")
    try:
        numbers = [float(text) if "." in text else int(text) for text in texts]
    except ValueError:
        allowed = "a number, or one for each level, such as " + ("4,2; or auto" if option == "--factor" else "0.5,0.3")
        raise typer.BadParameter(f"{','.join(given)!r} is not {allowed}.", param_hint=option) from None
    return tuple(numbers) if len(numbers) > 1 else numbers[0]
