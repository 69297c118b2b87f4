"""Presets of the controls: sizes, and one choice from "closest" to "fastest" that sets the method and its factors."""

from typing import Any, NamedTuple

from ...hosts import find_layers
from ...plan import Plan
from ...reductions import AUTO_KEYS, Downsample, Merge, Reduction, as_tuple
from ...tokens.grid import smallest_factor
from ..measuring.subjects import own_size
from ..pipelines import EMBEDDED, Size, denoiser
from ..settings import recommended_settings
from .form import LARGEST_FACTOR, Form
from .limits import Limits

SIDES = (512, 768, 1024, 1536, 2048)
PROMPTS = {EMBEDDED: "a field of red tulips"}
PACES = ("closest", "close", "fast", "fastest")


class SizePreset(NamedTuple):
    """Size to choose. It sets width and height, and nothing else."""

    name: str
    size: Size


def sizes(model: str, pipe: Any, limits: Limits) -> list[SizePreset]:
    """The model's own size, and larger squares within the limits."""
    own = recommended_settings(model).size or own_size(pipe)
    offered = [own, *((side, side) for side in SIDES if side > max(own))]
    return [SizePreset(" x ".join(map(str, size)), size) for size in offered if max(size) <= limits.side]


def size_of(form: Form, offered: list[SizePreset]) -> str | None:
    """Name of the preset that the form has; None where it has a size of its own."""
    return next((preset.name for preset in offered if preset.size == (form.width, form.height)), None)


def token_pixels(pipe: Any) -> int | None:
    """Pixels on a side of a token at level 1; None where the model has none that can be reduced."""
    layers = find_layers(denoiser(pipe))
    pixels = getattr(pipe, "vae_scale_factor", None)
    return pixels * 2 ** min(layer.scale for layer in layers) if layers and pixels else None


def automatic_factor(size: Size, pixels: int | None) -> int | None:
    """What the factor "auto" is at level 1 for pictures of a size; 1 changes nothing. None where it is not known."""
    if pixels is None:
        return None
    return smallest_factor((size[1] // pixels, size[0] // pixels), AUTO_KEYS)


def pace_sets(pace: str, auto: int | None) -> dict[str, Any]:
    """Values of controls, by the fields of Form, for a choice from closest to fastest.

    Args:
        pace: One of PACES.
        auto: The automatic factor at the size that is set.
    """
    factor = max(2, auto or 1)
    more = {"closest": 0, "close": 0, "fast": 1, "fastest": 2}[pace]
    return {
        "method": "todome",
        "auto": pace == "close" and auto != 1,
        "factor": min(factor + more, LARGEST_FACTOR),
        "factor2": 2 if pace == "fastest" else 1,
        "start": 0,
        "stop": 0.8 if pace == "closest" else 1,
    }


def pace_of(form: Form, auto: int | None) -> str | None:
    """The choice that the form has; None where its settings are others."""
    for pace in PACES:
        sets = pace_sets(pace, auto)
        if sets["auto"]:
            sets = {name: value for name, value in sets.items() if not name.startswith("factor")}
        if all(getattr(form, name) == value for name, value in sets.items()):
            return pace
    return None


def first_form(model: str, pipe: Any, limits: Limits) -> Form:
    """Values of the controls when the page opens."""
    known = recommended_settings(model)
    offered = sizes(model, pipe, limits)
    width, height = offered[0].size if offered else (limits.side, limits.side)
    form = Form(
        prompt=PROMPTS.get(model, ""),
        width=width,
        height=height,
        steps=min(known.steps or 25, limits.steps),
        guidance=7.5 if known.guidance is None else known.guidance,
        model=model,
    )
    return form._replace(**pace_sets("close", automatic_factor((width, height), token_pixels(pipe))))


def title_of(reduction: Reduction | None) -> str:
    """Name of a method with its setting, such as "todome 2"."""
    if reduction is None:
        return "full attention"
    if isinstance(reduction, Plan):
        return "plan"
    levels = as_tuple(getattr(reduction, reduction.level_field))
    setting = ", ".join(level if isinstance(level, str) else f"{level:.3g}" for level in levels)
    window = f", {reduction.start:.0%} to {reduction.stop:.0%}" if reduction.windowed else ""
    return f"{name_of(reduction)} {setting}{window}"


def name_of(reduction: Reduction | None) -> str:
    if reduction is None:
        return "full attention"
    if isinstance(reduction, Plan):
        return "your plan"
    return "ToMe" if not isinstance(reduction, Downsample) else "ToDo" if reduction.phase == "fixed" else "todome"


def explained(reduction: Reduction | None, auto: int | None) -> str:
    """What a setting does, in a sentence or two."""
    if reduction is None:
        return "Full attention alone: every token looks at every other one. There is nothing to compare it with."
    said = explained_merge(reduction) if isinstance(reduction, Merge) else explained_keys(reduction, auto)
    if not reduction.windowed:
        return said
    return f"{said} From {reduction.start:.0%} to {reduction.stop:.0%} of the steps; full attention otherwise."


def explained_merge(reduction: Merge) -> str:
    return f"ToMe: {as_tuple(reduction.ratio)[0]:.0%} of the tokens are merged with others that are alike."


def explained_keys(reduction: Any, auto: int | None) -> str:
    factor, *deeper = as_tuple(reduction.factor)
    part = share_in_words((auto or 2) if factor == "auto" else factor)
    which = "always the same one" if reduction.phase == "fixed" else "a different one at every step"
    said = f"{name_of(reduction)}: attention looks at {part} of the picture, {which}."
    return f"{said} Deeper layers look at less, too." if deeper else said


def share_in_words(factor: float) -> str:
    names = {1.0: "all", 4.0: "a quarter", 9.0: "a ninth", 16.0: "a sixteenth"}
    return names.get(float(factor) ** 2, f"1 part in {factor**2:g}")
