"""Reuse over steps: the models that it goes into, and what the gates of each of them share."""

import uuid
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ..errors import NothingToReduce
from ..hosts.stages import Denoiser, find_denoiser, mixes_rows, shows_attention
from ..levers.reuse import Reuse
from ..steps import costs, law
from ..steps.choosing import Schedule, Weights, by_hand, choose, whole
from ..steps.kept import Caller, Kept, Report
from ..steps.law import CONDITIONAL, STAGES
from .gates import ModelGate, StageGate, is_cached_by_others
from .graphs import DeepSlots
from .halves import is_guided, without_pictures
from .patched import LeverState, PatchedModel
from .registry import Places, attaches
from .root import RootPart
from .skipping import loads_ahead

DEFAULT_GUIDANCE = 7.5  # where no pipeline tells


class ReuseState(LeverState):
    """What the gates of one model share."""

    lever: Reuse

    def __init__(self, lever: Reuse, denoiser: Denoiser, patched: PatchedModel) -> None:
        super().__init__(lever, patched)
        self.key = uuid.uuid4()  # under which a run keeps what is this model's; a copy has the same
        self.finest, self.channels, self.sign = denoiser.finest, denoiser.channels, denoiser.sign
        self.is_adapted = denoiser.is_adapted
        self.stages = max((part.stage for part in denoiser.parts), default=0)
        self.name = type(denoiser.model).__name__
        self.graph = DeepSlots()
        self.report: Report | None = None  # of the last run

    def kept_by(self, run: Any) -> Kept | None:
        """What a run keeps for this model; None where it is of no falling noise levels."""
        kept = run.kept.get(self.key)
        if self.key not in run.kept or (kept is not None and run.index < kept.index):  # or the loop was begun again
            noise = run.noise()
            kept = None if noise is None or not noise.falls else Kept(noise, run.index)
            run.kept[self.key] = kept
        return kept if kept is not None and run.index < len(kept.noise.places) else None

    def ask(self, caller: Caller, kept: Kept, run: Any, latents: Tensor, model: nn.Module) -> None:
        """Looks whether the batch of a caller is guided, and how its model is offloaded."""
        caller.asked += 1
        noise = without_pictures(latents, self.channels)
        guided = caller.guided is not False and is_guided(noise) and not mixes_rows(model)
        caller.loads_ahead = loads_ahead(model)
        if guided != caller.guided:
            caller.guided, caller.shares = guided, self.shares(guided, latents)
            caller.schedule = self.choose(caller, kept, run, model)
            self.report = kept.report

    def choose(self, caller: Caller, kept: Kept, run: Any, model: nn.Module) -> Schedule:
        """Finds the kinds of the steps of a caller."""
        sigmas, guided = kept.noise.sigmas[kept.first :], bool(caller.guided)
        if shows_attention(model):
            return whole(sigmas)
        if self.lever.keep is None:
            return by_hand(self.lever, sigmas, kept.first, caller.shares, guided)
        own = law.UNET if self.stages else law.TRANSFORMER
        weights = Weights(own, self.guidance(run), kept.noise.order)
        return choose(sigmas, tuple(caller.shares.items()), weights, self.lever.keep)

    def shares(self, guided: bool, latents: Tensor) -> dict[str, float]:
        """The cost of each kind of step that can be had."""
        if not self.stages:
            shares = {"o": costs.NOTHING, **costs.TRANSFORMER}
        else:
            shares = costs.unet_shares(self.finest, tuple(latents.shape[-2:]), len(latents) // (1 + guided))
        halves = guided and self.lever.guidance
        deepest = self.stages - 1
        return {
            letter: share
            for letter, share in shares.items()
            if (halves or letter not in CONDITIONAL) and (STAGES.get(letter) or 0) < max(deepest, 1)
        }

    def guidance(self, run: Any) -> float:
        """The largest guidance scale of the pipelines that the scheduler of a run is in."""
        found = [getattr(pipeline, "guidance_scale", None) for pipeline in self.patched.shared.runs.pipelines_of(run)]
        return max((float(scale) for scale in found if isinstance(scale, (int, float))), default=DEFAULT_GUIDANCE)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"report": None}


@attaches(Reuse)
class ReusePlaces(Places):
    """The models among some that are called once a step."""

    def __init__(self, lever: Reuse, models: Sequence[nn.Module]) -> None:
        self.lever, self.looked_at = lever, models
        self.denoisers = {one.model: one for one in map(find_denoiser, models) if one is not None}
        self.models = list(self.denoisers)
        for model in self.models:
            refuse_other_caches(model)
        self.states: list[ReuseState] = []

    def refusal(self, target: str) -> Exception:
        allowed = "a UNet, or a transformer that is called with latents and a timestep"
        return NothingToReduce(f"target={target} cannot be used with Reuse. Allowed: {allowed}. Leave it dense.")

    def attach(self, model: nn.Module, patched: PatchedModel) -> RootPart:
        state = ReuseState(self.lever, self.denoisers[model], patched)
        self.states.append(state)
        ModelGate(model, state)
        for part in self.denoisers[model].parts:
            if part.stage > 1:
                StageGate(part, state)
        return RootPart()  # it acts before any hook of the model does

    def lines(self) -> list[str]:
        """What was done in the last run of each model, for people."""
        return [line for state in self.states if state.report is not None for line in state.report.lines()]


def refuse_other_caches(model: nn.Module) -> None:
    if is_cached_by_others(model):
        raise RuntimeError(
            "Reuse cannot be used beside DeepCache or a cache of diffusers, which repeat what Reuse extrapolates. Call "
            "helper.disable() or model.disable_cache() first, or leave Reuse out."
        )
