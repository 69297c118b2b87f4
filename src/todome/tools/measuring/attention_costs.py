"""Timing of a denoiser with fewer keys: what attention over the keys of each level takes of a step."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ...levers.downsample import Downsample
from ...levers.lever import Level
from ...levers.plan import LeverOrPlan
from ...patch import apply
from ...tokens.grid import Grid
from ..timing import Timing
from .subjects import DenoiserCall

Preparation: TypeAlias = Callable[[DenoiserCall], Callable[[], Any]]


@dataclass(frozen=True)
class LevelCost:
    """One resolution of a model: what attention over its keys costs, and what is left of them."""

    level: int
    layers: int
    grid: Grid
    kept: int  # keys after the reduction
    share: float  # of a step's time, that attention over these keys takes

    @property
    def keys(self) -> int:
        return math.prod(self.grid)


def reduced_levels(call: DenoiserCall, reduction: Downsample) -> list[LevelCost]:
    """The levels of a model with the grids that it has at this size, and what the reduction leaves of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that "auto" finds nothing to do is told by the verdict
        everywhere, wanted = [levels_after_call(call, one) for one in (Downsample(), reduction)]
    grids = {level.level: max(level.grids) for level in everywhere}
    kept = {level.level: left for level in wanted for grid, left in level.grids.items() if grid == grids[level.level]}
    return [
        LevelCost(
            level.level, level.layers, grids[level.level], kept.get(level.level, math.prod(grids[level.level])), 0.0
        )
        for level in everywhere
    ]


def levels_after_call(call: DenoiserCall, reduction: Downsample) -> list[Level]:
    with apply(call.model, reduction) as patch:
        call()
        return patch.levels


class StepTimes(NamedTuple):
    """Milliseconds of a dense step, how much they vary, and how much faster each reduction is."""

    ms: float
    noise: float
    speedups: Mapping[LeverOrPlan, float]


def step_times(
    call: DenoiserCall, reductions: Sequence[LeverOrPlan], prepare: Preparation, timing: Timing
) -> StepTimes:
    """The shortest time of each counts: others were disturbed by something."""
    times: dict[LeverOrPlan | None, list[float]] = {reduction: [] for reduction in [None, *reductions]}
    for reduction in timing.turns(list(times)):
        with nullcontext() if reduction is None else apply(call.model, reduction):
            times[reduction].append(min(timing.milliseconds(prepare(call), call.device)))
    dense = min(times[None])
    ratios = {one: dense / min(times[one]) for one in reductions}
    return StepTimes(dense, max(times[None]) / dense - 1, ratios)
