"""Values of the controls of the page, and the Settings they mean."""

from dataclasses import replace
from typing import Any, NamedTuple

from ...errors import invalid_value
from ...reductions import Downsample, Merge, Reduction
from ..generate import Settings
from ..schedulers import SCHEDULERS
from .limits import GUIDANCE, SEEDS, SMALLEST, Limits, check_choice, check_number, check_text, check_whole

METHODS = ("todome", "ToDo", "ToMe", "dense")  # as they are called on the page
STRIDES = ("2", "3", "4")
LARGEST_FACTOR = 16.0
OWN = ""  # value for the model's own scheduler


class Form(NamedTuple):
    """Values of all controls, in the order in which the page sends them. None of them is to be trusted."""

    prompt: Any = ""
    method: Any = "todome"
    auto: Any = False  # factor by the size
    factor: Any = 2
    factor2: Any = 1  # of level 2; 1 is dense
    ratio: Any = 0.5
    stride: Any = "2"
    start: Any = 0.0
    stop: Any = 1.0
    width: Any = 256
    height: Any = 256
    steps: Any = 25
    guidance: Any = 3.0
    seed: Any = 0
    scheduler: Any = OWN
    negative: Any = ""

    def settings(self, limits: Limits, base: Settings) -> Settings:
        """Settings of the reduced picture, checked. Model, device and dtype are those of the base."""
        return replace(
            base,
            prompt=check_text("prompt", self.prompt, limits.prompt),
            negative=check_text("negative", self.negative, limits.prompt),
            seed=check_whole("seed", self.seed, 0, SEEDS - 1),
            size=(
                check_whole("width", self.width, SMALLEST, limits.side),
                check_whole("height", self.height, SMALLEST, limits.side),
            ),
            steps=check_whole("steps", self.steps, 1, limits.steps),
            guidance=float(check_number("guidance", self.guidance, 0, GUIDANCE)),
            scheduler=check_choice("scheduler", self.scheduler, (OWN, *SCHEDULERS), ", ".join(SCHEDULERS)) or None,
            reduction=self.reduction(),
        )

    def reduction(self) -> Reduction | None:
        method = check_choice("method", self.method, METHODS, ", ".join(METHODS))
        if method == "dense":
            return None
        window: dict[str, Any] = {
            "start": check_number("start", self.start, 0, 1),
            "stop": check_number("stop", self.stop, 0, 1),
        }
        if method == "ToMe":
            stride = int(check_choice("stride", self.stride, STRIDES, ", ".join(STRIDES)))
            return Merge(check_number("ratio", self.ratio, 0, 1), stride=(stride, stride), **window)
        return Downsample(self.factors(), phase="fixed" if method == "ToDo" else "dither", **window)

    def factors(self) -> Any:
        if not isinstance(self.auto, bool):
            raise invalid_value("auto", self.auto, "True or False", "Set or clear the box")
        if self.auto:
            return "auto"
        factor = check_number("factor", self.factor, 1, LARGEST_FACTOR)
        deeper = check_number("factor of level 2", self.factor2, 1, LARGEST_FACTOR)
        return factor if deeper == 1 else (factor, deeper)
