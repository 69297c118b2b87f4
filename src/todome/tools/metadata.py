"""What files say of how they were made: settings in pictures, reductions in pictures and LoRAs."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import invalid_value
from ..levers.plan import BROKEN, LEVERS, LeverOrPlan, Plan, lever_of, read_1, read_2
from ..levers.plan import settings_of as fields_of
from .machine import versions_of
from .pipelines import format_size
from .settings import Settings

LATER = ("loras", "vae")  # settings that pictures of todome 0.1 do not have
LAYER_OF_1 = ("factor", "later", "tokens", "width")  # of their plans
KINDS = {kind.__name__: name for name, kind in LEVERS.items()}  # names of levers in files of plans


def settings_texts(settings: Settings, sampler: str) -> dict[str, str]:
    """Texts for a PNG file: all settings for `settings_of`, and the lines that other tools read."""
    return {"todome": settings_json(settings, sampler), "parameters": settings_infotext(settings, sampler)}


def settings_of(path: Path) -> Settings:
    """The settings a picture was made with, from its file."""
    from .pictures import read_texts

    allowed = "a PNG file that todome made"
    try:
        found = json.loads(read_texts(path)["todome"])
        names = [name for name in Settings.__dataclass_fields__ if name in found or name not in LATER]
        settings = {name: as_tuple(found[name]) for name in names}
        return Settings(**{**settings, "reduction": reduction_from_dict(settings["reduction"])})
    except OSError:
        remedy = "There is no picture of that name"
        raise invalid_value("picture", str(path), allowed, remedy, FileNotFoundError) from None
    except BROKEN:
        raise invalid_value("picture", str(path), allowed, "This one has no settings of todome in it") from None


def settings_json(settings: Settings, sampler: str) -> str:
    reduction, versions = reduction_to_dict(settings.reduction), versions_of("diffusers")
    return json.dumps({**asdict(settings), "reduction": reduction, "sampler": sampler, "versions": versions})


def settings_infotext(settings: Settings, sampler: str) -> str:
    """The settings as stable-diffusion-webui writes them, which many tools read."""
    facts = {
        "Steps": settings.steps,
        "Sampler": sampler,
        "CFG scale": settings.guidance and f"{settings.guidance:g}",
        "Seed": settings.seed,
        "Size": settings.size and format_size(settings.size),
        "Model": Path(settings.model).name,
        "LoRA": ", ".join(Path(lora).name for lora in settings.loras) or None,
        "VAE": settings.vae and Path(settings.vae).name,
        "Token reduction": settings.reduction and json.dumps(str(settings.reduction)),
        "Version": f"todome {__version__}",
    }
    lines = [settings.prompt, f"Negative prompt: {settings.negative}" if settings.negative else ""]
    lines.append(", ".join(f"{name}: {fact}" for name, fact in facts.items() if fact is not None))
    return "\n".join([lines[0], *filter(None, lines[1:])])


def reduction_to_dict(reduction: LeverOrPlan | None) -> dict[str, Any] | None:
    if isinstance(reduction, Plan):
        return {"name": "Plan", **reduction.as_dict()}
    return reduction and {"name": type(reduction).__name__, **fields_of(reduction)}


def reduction_from_dict(entries: Mapping[str, Any] | None) -> LeverOrPlan | None:
    """The reduction that `reduction_to_dict` wrote, in this version of todome or an older one."""
    if entries is None:
        return None
    own = {name: value for name, value in entries.items() if name != "name"}
    if entries["name"] != "Plan":
        return lever_of(KINDS[entries["name"]], own)
    if "layers" in own:  # pictures of todome 0.1
        layers = {name: dict(zip(LAYER_OF_1, layer, strict=True)) for name, layer in own["layers"].items()}
        return read_1({**own, "layers": layers})
    return read_2({name: value for name, value in own.items() if name != "todome_plan"})


def as_tuple(value: Any) -> Any:
    """A tuple where JSON has made a list of it."""
    return tuple(value) if isinstance(value, list) else value
