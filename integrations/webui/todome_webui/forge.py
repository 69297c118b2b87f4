"""Forge and reForge: the model's settings are cloned and given patches, and put back after the pass."""

from collections.abc import Callable
from typing import Any

from todome.hosts.comfy import AttentionPatch
from todome.reductions import Reduction
from todome.steps.sigmas import SigmaClock


class SamplerClock(SigmaClock):
    """Where the sampler says that it is: Forge does not tell its schedule, but it counts."""

    def follow(self, options: dict[str, Any]) -> None:
        """The call belongs to the step that `at` named."""

    def at(self, step: int, steps: int) -> None:
        self.step, self.phase_index = step, self.reduction.phase_index(step)
        self.active = self.reduction.is_on(step, steps)

    def __deepcopy__(self, memo: Any) -> "SamplerClock":
        return self  # others may clone the settings after us: there is one sampler all the same


class ReducedModel:
    """A model whose settings have todome's patches, until `remove`."""

    def __init__(self, sd_model: Any, reduction: Reduction, tell: Callable[[str], None]) -> None:
        self.objects, self.dense = sd_model.forge_objects, sd_model.forge_objects.unet
        patch = AttentionPatch(reduction, self.dense.model.diffusion_model, tell=tell)
        patch.clock = self.clock = SamplerClock(reduction, None)
        self.reduced = self.dense.clone()
        self.reduced.set_model_attn1_patch(patch.before)  # pyright: ignore[reportAttributeAccessIssue]
        self.reduced.set_model_attn1_output_patch(patch.after)  # pyright: ignore[reportAttributeAccessIssue]
        self.objects.unet = self.reduced

    def at(self, step: int, steps: int) -> None:
        self.clock.at(step, steps)

    def remove(self) -> None:
        if self.objects.unet is self.reduced:
            self.objects.unet = self.dense
