"""Settings that go together: what the model is made for, and the sizes of the papers with their factors and ratios."""

from typing import Any, NamedTuple

from ...reductions import Downsample
from ..generate import recommended
from ..measuring.methods import within_stride
from ..measuring.subjects import own_size
from ..pipelines import EMBEDDED, Size, format_size
from .form import Form
from .limits import Limits

PAPERS = ((1024, 2, 0.75), (1536, 3, 0.89), (2048, 4, 0.9375))  # side, factor and stride, ratio: as ToDo compares them
PROMPTS = {EMBEDDED: "a field of red tulips"}


class Preset(NamedTuple):
    """Controls that a name sets; the others stay as they are."""

    name: str
    size: Size
    sets: dict[str, Any]  # by the fields of Form


def presets(model: str, pipe: Any, limits: Limits) -> list[Preset]:
    """Those within the limits, the model's own first, then twice as large, where attention dominates."""
    made_for = own(model, pipe)
    offered = [made_for, *map(of_the_papers, PAPERS)]
    if made_for.size[0] * 2 not in [side for side, _, _ in PAPERS]:
        offered.insert(1, twice(made_for))
    return [preset for preset in offered if max(preset.size) <= limits.side]


def own(model: str, pipe: Any) -> Preset:
    known = recommended(model)
    width, height = size = known.size or own_size(pipe)
    factor = known.reduction.factor if isinstance(known.reduction, Downsample) else "auto"
    factors = {"auto": True} if factor == "auto" else {"auto": False, "factor": factor, "factor2": 1}
    asked = {"steps": known.steps, "guidance": known.guidance}
    given = {name: value for name, value in asked.items() if value is not None}
    merged = {"ratio": 0.5, "stride": "2"}
    return Preset(
        f"Made for it: {format_size(size)}", size, {"width": width, "height": height, **factors, **merged, **given}
    )


def twice(preset: Preset) -> Preset:
    width, height = size = (2 * preset.size[0], 2 * preset.size[1])
    return Preset(f"Twice as large: {format_size(size)}", size, {**preset.sets, "width": width, "height": height})


def of_the_papers(row: tuple[int, int, float]) -> Preset:
    side, factor, rounded = row
    ratio = within_stride({"stride": (factor, factor), "ratio": rounded})["ratio"]
    factors = {"auto": False, "factor": factor, "factor2": 1, "ratio": ratio, "stride": str(factor)}
    return Preset(f"{side}: 1 key in {factor**2}", (side, side), {"width": side, "height": side, **factors})


def first_form(model: str, pipe: Any, limits: Limits) -> Form:
    """What the controls say when the page opens."""
    form = Form(prompt=PROMPTS.get(model, ""), steps=min(25, limits.steps), guidance=7.5)
    offered = presets(model, pipe, limits)
    form = form._replace(**offered[0].sets) if offered else form._replace(width=limits.side, height=limits.side)
    return form._replace(steps=min(form.steps, limits.steps))
