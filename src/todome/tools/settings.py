"""Settings of a picture: everything it depends on, validated."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..errors import invalid_value
from ..levers.checks import is_number
from ..levers.downsample import Downsample
from ..levers.plan import LeverOrPlan, Plan
from .pipelines import EMBEDDED, Size
from .schedulers import SCHEDULERS, check_scheduler


@dataclass(frozen=True)
class Settings:
    """Everything a picture depends on.

    Args: Important
        prompt: What to draw.
        negative: What to keep away from.
        model: "todome-flowers" (the embedded one), the folder of a pipeline, a .safetensors checkpoint, or an id on the
            Hugging Face hub.
        seed: Seed of the noise the picture starts from.
        reduction: `Downsample(...)`, `Merge(...)`, or None for dense.

    Args: Left to the pipeline where they are None
        size: Width and height in pixels.
        steps: Number of denoising steps.
        guidance: Scale of classifier-free guidance: how much the prompt counts.
        scheduler: Name of a scheduler, one of `todome.tools.schedulers.SCHEDULERS`.

    Args: Other weights
        loras: Files of LoRAs, each with a weight if it is to be another than 1: "style.safetensors:0.8".
        vae: File or folder of another autoencoder than the model's.

    Args: Machine
        device: "auto" takes the GPU if there is one.
        dtype: "auto" is float16 on a GPU and float32 on a CPU.
    """

    prompt: str = ""
    negative: str = ""
    model: str = EMBEDDED
    seed: int = 0
    size: Size | None = None
    steps: int | None = None
    guidance: float | None = None
    scheduler: str | None = None
    reduction: LeverOrPlan | None = None
    device: str = "auto"
    dtype: str = "auto"
    loras: tuple[str, ...] = ()
    vae: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise invalid_value("seed", self.seed, "a whole number from 0 to 2**63 - 1", "The default is seed=0")
        if self.steps is not None and self.steps < 1:
            raise invalid_value("steps", self.steps, "a whole number of at least 1", "25 is a good start")
        if self.guidance is not None and not (is_number(self.guidance) and 0 <= self.guidance < math.inf):
            raise invalid_value(
                "guidance", self.guidance, "a number of at least 0", "1 is no guidance, 3 to 8 is usual"
            )
        check_scheduler(self.scheduler)
        for name, value in asdict(self).items():
            check_writable(name, value)

    def with_plan(self, file: str, load: Callable[[str], Plan] = Plan.load) -> "Settings":
        """With a plan and all that it was measured with but the model; if it names no LoRAs and no VAE, without any."""
        plan = load(file)
        names = ("size", "steps", "guidance", "scheduler", "loras", "vae")
        found = {name: plan.conditions[name] for name in names if name in plan.conditions}
        try:
            if found:
                found = {"vae": None, **found, "loras": tuple(found.get("loras", ()))}
            if "size" in found:
                found["size"] = tuple(found["size"])
            if "scheduler" in found and found["scheduler"] not in SCHEDULERS:  # but the class of the model's own
                found["scheduler"] = None
            return replace(self, reduction=plan, **found)
        except TypeError:
            allowed = "a plan whose settings are of the kinds that todome tune writes"
            raise invalid_value("plan", file, allowed, "Make it again: todome tune") from None


def check_writable(field: str, value: Any) -> None:
    """Refuses what could not be written into the file of a picture, before the picture is drawn."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        remedy = "Convert it with int(), float() or str()"
        raise invalid_value(field, value, "what JSON can hold, as settings are written so", remedy) from None


def recommended_settings(model: str = EMBEDDED) -> Settings:
    """Settings that suit a model: the embedded one is known, others know their own defaults."""
    if model == EMBEDDED:
        return Settings(size=(256, 256), steps=25, guidance=3.0, reduction=Downsample(2))
    return Settings(model=model, reduction=Downsample("auto"))
