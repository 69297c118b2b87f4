"""What the controls are set to when the page opens, and one choice from "closest" to "fastest"; names of methods."""

from typing import Any

from ...hosts import find_layers
from ...levers.checks import as_tuple
from ...levers.downsample import AUTO_KEYS, Downsample
from ...levers.lever import LevelLever
from ...levers.plan import LeverOrPlan
from ...tokens.grid import smallest_factor
from ..measuring.methods import is_windowed
from ..measuring.subjects import own_size
from ..pipelines import EMBEDDED, denoiser
from ..settings import recommended_settings
from .form import LARGEST_FACTOR, Form, Offer

PROMPTS = {EMBEDDED: "a field of red tulips"}
PACES = ("closest", "close", "fast", "fastest")


def first_form(pipe: Any, offer: Offer) -> Form:
    """Values of the controls when the page opens."""
    known = recommended_settings(offer.base.model)
    width, height = (min(side, offer.side) for side in known.size or own_size(pipe))
    form = Form(
        prompt=PROMPTS.get(offer.base.model, ""),
        width=width,
        height=height,
        steps=min(known.steps or 25, offer.steps),
        guidance=7.5 if known.guidance is None else known.guidance,
    )
    return form._replace(**pace_sets("close", automatic_factor(form, token_pixels(pipe))))


def token_pixels(pipe: Any) -> int | None:
    """Pixels on a side of a token at level 1; None where the model has none that can be reduced."""
    layers = find_layers(denoiser(pipe))
    pixels = getattr(pipe, "vae_scale_factor", None)
    return pixels * 2 ** min(layer.scale for layer in layers) if layers and pixels else None


def automatic_factor(form: Form, pixels: int | None) -> int:
    """What the factor "auto" is at level 1 for pictures of the form's size; 1 changes nothing."""
    try:
        return smallest_factor((int(form.height) // (pixels or 0), int(form.width) // (pixels or 0)), AUTO_KEYS)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):  # whatever was typed, or a model without tokens
        return 1


def pace_sets(pace: str, auto: int) -> dict[str, Any]:
    """Values of controls, by the fields of Form, for a choice from closest to fastest.

    Args:
        pace: One of PACES.
        auto: The automatic factor at the size that is set.
    """
    more = {"closest": 0, "close": 0, "fast": 1, "fastest": 2}[pace]
    return {
        "method": "todome",
        "auto": pace == "close" and auto != 1,
        "factor": min(max(2, auto) + more, LARGEST_FACTOR),
        "factor2": 2 if pace == "fastest" else 1,
        "start": 0,
        "stop": 0.8 if pace == "closest" else 1,
    }


def title_of(reduction: LeverOrPlan | None) -> str:
    """Name of a method with its setting, such as "todome 2"."""
    if reduction is None:
        return "full attention"
    if not isinstance(reduction, LevelLever):
        return "your plan"
    levels = as_tuple(getattr(reduction, reduction.level_field))
    setting = ", ".join(level if isinstance(level, str) else f"{level:.3g}" for level in levels)
    window = f", {reduction.start:.0%} to {reduction.stop:.0%}" if is_windowed(reduction) else ""
    return f"{name_of(reduction)} {setting}{window}"


def name_of(reduction: Any) -> str:
    return "ToMe" if not isinstance(reduction, Downsample) else "ToDo" if reduction.phase == "fixed" else "todome"
