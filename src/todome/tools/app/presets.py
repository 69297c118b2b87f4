"""Presets of the controls: the size a model is made for, and the sizes of the papers with their factors and ratios."""

from typing import Any, NamedTuple

from ...reductions import Downsample
from ..measuring.methods import within_stride
from ..measuring.subjects import own_size
from ..pipelines import EMBEDDED, Size, format_size
from ..settings import recommended_settings
from .form import Form
from .limits import Limits

PAPERS = ((1024, 2, 0.75), (1536, 3, 0.89), (2048, 4, 0.9375))  # side, factor and stride, ratio: as ToDo compares them
PROMPTS = {EMBEDDED: "a field of red tulips"}


class Preset(NamedTuple):
    """Name for values of some controls; the others stay as they are."""

    name: str
    size: Size
    sets: dict[str, Any]  # by the fields of Form


def presets(model: str, pipe: Any, limits: Limits) -> list[Preset]:
    """Presets within the limits: the model's own size, twice that (attention dominates), those of the papers."""
    own = own_preset(model, pipe)
    offered = [own, *map(paper_preset, PAPERS)]
    if own.size[0] * 2 not in [side for side, _, _ in PAPERS]:
        offered.insert(1, double_preset(own))
    return [preset for preset in offered if max(preset.size) <= limits.side]


def own_preset(model: str, pipe: Any) -> Preset:
    known = recommended_settings(model)
    width, height = size = known.size or own_size(pipe)
    factor = known.reduction.factor if isinstance(known.reduction, Downsample) else "auto"
    factors = {"auto": True} if factor == "auto" else {"auto": False, "factor": factor, "factor2": 1}
    asked = {"steps": known.steps, "guidance": known.guidance}
    given = {name: value for name, value in asked.items() if value is not None}
    merged = {"ratio": 0.5, "stride": "2"}
    return Preset(
        f"Made for it: {format_size(size)}", size, {"width": width, "height": height, **factors, **merged, **given}
    )


def double_preset(preset: Preset) -> Preset:
    width, height = size = (2 * preset.size[0], 2 * preset.size[1])
    return Preset(f"Twice as large: {format_size(size)}", size, {**preset.sets, "width": width, "height": height})


def paper_preset(row: tuple[int, int, float]) -> Preset:
    side, factor, rounded = row
    ratio = within_stride({"stride": (factor, factor), "ratio": rounded})["ratio"]
    factors = {"auto": False, "factor": factor, "factor2": 1, "ratio": ratio, "stride": str(factor)}
    return Preset(f"{side}: 1 key in {factor**2}", (side, side), {"width": side, "height": side, **factors})


def first_form(model: str, pipe: Any, limits: Limits) -> Form:
    """Values of the controls when the page opens."""
    form = Form(prompt=PROMPTS.get(model, ""), steps=min(25, limits.steps), guidance=7.5)
    offered = presets(model, pipe, limits)
    form = form._replace(**offered[0].sets) if offered else form._replace(width=limits.side, height=limits.side)
    return form._replace(steps=min(form.steps, limits.steps))
