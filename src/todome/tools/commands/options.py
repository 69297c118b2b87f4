"""Options that several commands take: their help, and the values that their words mean."""

from functools import partial
from typing import Annotated, Any

import typer

from ...reductions import Downsample, Merge, Reduction
from ..devices import DTYPES
from ..pipelines import Size
from ..schedulers import SCHEDULERS

drawing_option = partial(typer.Option, rich_help_panel="What to draw")
model_option = partial(typer.Option, rich_help_panel="Which model")
reduction_option = partial(typer.Option, rich_help_panel="How much to reduce")
measure_option = partial(typer.Option, rich_help_panel="What to measure")
machine_option = partial(typer.Option, rich_help_panel="Machine and files")


def by_default(what: object) -> str:
    return rf" [dim]\[default: {what}][/dim]"


OF_THE_MODEL = by_default("the model's")
SCHEDULER = f"One of {', '.join(SCHEDULERS)}." + OF_THE_MODEL
GUIDANCE = "How closely to follow the prompt." + OF_THE_MODEL
FACTOR = "Attend to 1 token in F x F at level 1, the finest; 4,2 is for levels 1 and 2; auto goes by the size."
FACTORS = FACTOR + by_default("2 for the embedded model, else auto")
RATIOS = "Merge this share of the tokens (ToMe) instead; 0.5,0.3 is for levels 1 and 2."
PHASES = (
    "Which token of each F x F: another at every step (dither), always the same (fixed, ToDo), or a random one."
    + by_default("dither")
)
SIZE = "In pixels: 512, or 512x768 for WIDTHxHEIGHT."
SIZES = "Sizes in pixels: 512, or 512x768 for WIDTHxHEIGHT."
METHODS = "todome, todome:2, todome:4,2, todo:2, tome:0.5, tomesd:0.5, ca-tome, deepcache:3, todome:2+deepcache."
USUAL_METHODS = METHODS + by_default("todome todo tome")
MODEL = "A diffusers folder, a .safetensors checkpoint (SD 1.x, 2.x, SDXL), or a hub id."
SUBJECT = f"{MODEL} Or sd15, sd21, sdxl, animatediff, svd: UNets of these shapes with random weights."
LORA = "Add a LoRA (.safetensors), as it is or times WEIGHT. May be given several times."
VAE = "Decode with another VAE: a .safetensors file or a folder." + OF_THE_MODEL
Loras = Annotated[list[str] | None, model_option("--lora", metavar="FILE[:WEIGHT]", help=LORA)]
Vae = Annotated[str | None, model_option("--vae", metavar="FILE", help=VAE)]
DEVICE = "auto (a GPU if there is one), cpu, cuda, mps, ..."
DTYPE = f"auto (float16 on a GPU, float32 on a CPU), {', '.join(DTYPES)}."


def without_none(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def parse_size(text: str | None) -> Size | None:
    return None if text is None else read_size(text)


def read_size(text: str) -> Size:
    """Size from a word: 512 is a square, 768x512 is width and height."""
    width, times, height = text.lower().partition("x")
    height = height if times else width
    if not (width.isdecimal() and height.isdecimal()):
        raise typer.BadParameter(f"{text!r} is not a size, such as 512 or 512x768.", param_hint="--size")
    return int(width), int(height)


def read_sizes(texts: list[str] | None, old: list[str] | None) -> list[Size] | None:
    """Sizes from words; the old spelling of the option, --sizes, goes on working until 0.3."""
    if old:
        typer.echo("Note: --sizes is now --size, with the same values. The old name will go in version 0.3.", err=True)
    words = [*(texts or []), *(old or [])]
    return [read_size(word) for word in words] or None


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


def choose_reduction(
    base: Reduction | None, factor: list[str] | None, ratio: list[str] | None, dense: bool, rest: dict[str, Any]
) -> Reduction | None:
    """The reduction that the options ask for; what they do not say is as in the base."""
    asked = [option for option, given in [("--factor", factor), ("--ratio", ratio), ("--dense", dense)] if given]
    if len(asked) > 1:
        raise typer.BadParameter("They exclude each other: use one of them.", param_hint=" and ".join(asked))
    kind = None if dense else Downsample if factor else Merge if ratio else base and type(base)
    for option in rest:
        if kind is None or (option == "phase" and kind is Merge):
            needed = "--factor" if option == "phase" else "--factor or --ratio"
            raise typer.BadParameter(f"It needs {needed}.", param_hint=f"--{option}")
    if kind is None:
        return None
    setting = {"factor": levels("--factor", factor)} if factor else {"ratio": levels("--ratio", ratio)} if ratio else {}
    return kind(**{**(vars(base) if type(base) is kind else {}), **setting, **rest})
