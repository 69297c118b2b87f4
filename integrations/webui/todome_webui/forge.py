"""Forge and reForge: the model's settings are cloned and given patches, and put back after the pass."""

from typing import Any

from todome.hosts.comfy import AttentionPatch
from todome.levers.lever import Level, TokenLever
from todome.steps.sigmas import SigmaClock


class SamplerClock(SigmaClock):
    """Where the sampler says that it is: Forge does not tell its schedule, but it counts."""

    def follow(self, options: dict[str, Any]) -> None:
        """The call belongs to the step that `at` named."""

    def at(self, step: int, steps: int) -> None:
        self.step, self.phase_index = step, self.lever.phase_index(step)
        self.part = self.parts.at(step, steps)

    def __deepcopy__(self, memo: Any) -> "SamplerClock":
        return self  # others may clone the settings after us: there is one sampler all the same


class LevelsMet:
    """The levels that met a grid, in whatever clone of the settings."""

    def __init__(self) -> None:
        self.levels: list[Level] = []

    def __call__(self, level: Level) -> None:
        if level not in self.levels:
            self.levels.append(level)

    def __deepcopy__(self, memo: Any) -> "LevelsMet":
        return self


class ReducedModel:
    """A model whose settings have todome's patches, until `remove`."""

    def __init__(self, sd_model: Any, lever: TokenLever) -> None:
        self.objects, self.dense = sd_model.forge_objects, sd_model.forge_objects.unet
        self.met = LevelsMet()
        patch = AttentionPatch(lever, self.dense.model.diffusion_model, self.met)
        patch.clock = self.clock = SamplerClock(lever, patch.parts, None)
        self.reduced = self.dense.clone()
        self.reduced.set_model_attn1_patch(patch.before)  # pyright: ignore[reportAttributeAccessIssue]
        self.reduced.set_model_attn1_output_patch(patch.after)  # pyright: ignore[reportAttributeAccessIssue]
        self.objects.unet = self.reduced

    def at(self, step: int, steps: int) -> None:
        self.clock.at(step, steps)

    def remove(self) -> list[Level]:
        """Puts the settings of before back. Returns the levels that met a grid."""
        if self.objects.unet is self.reduced:
            self.objects.unet = self.dense
        return self.met.levels
