"""Timing of a denoiser with fewer keys: what attention over the keys of each level takes of a step."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ...patch import apply
from ...reductions import Downsample, Level, Reduction
from ...tokens.grid import Grid
from ..timing import Timing, captured
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


class AttentionCosts:
    """How much faster a step is reduced, and with next to no keys at a level, than dense."""

    def __init__(self, call: DenoiserCall, reduction: Downsample, levels: Sequence[LevelCost], timing: Timing) -> None:
        self.levels = levels
        self.bound = self.without_keys([level for level in levels if level.kept < level.keys])
        bounds = [self.without_keys([level]) for level in levels]
        reductions = list(dict.fromkeys([reduction, self.bound, *bounds]))
        self.eager = step_times(call, reductions, lambda call: call, timing)
        self.own = step_times(call, reductions, captured, timing) if call.device.type == "cuda" else self.eager

    def without_keys(self, levels: Sequence[LevelCost]) -> Downsample:
        """One key in the largest square that fits each of these levels: what no reduction of keys can beat."""
        return Downsample([min(one.grid) if one in levels else 1 for one in self.levels], phase="fixed")

    def share(self, level: LevelCost) -> float:
        return round(max(0.0, 1 - 1 / self.own.speedups[self.without_keys([level])]), 4)


class StepTimes(NamedTuple):
    """Milliseconds of a dense step, how much they vary, and how much faster each reduction is."""

    ms: float
    noise: float
    speedups: Mapping[Reduction, float]


def step_times(call: DenoiserCall, reductions: Sequence[Reduction], prepare: Preparation, timing: Timing) -> StepTimes:
    """The shortest time of each counts: others were disturbed by something."""
    times: dict[Reduction | None, list[float]] = {reduction: [] for reduction in [None, *reductions]}
    for reduction in timing.turns(list(times)):
        with nullcontext() if reduction is None else apply(call.model, reduction):
            times[reduction].append(min(timing.milliseconds(prepare(call), call.device)))
    dense = min(times[None])
    ratios = {one: dense / min(times[one]) for one in reductions}
    return StepTimes(dense, max(times[None]) / dense - 1, ratios)
