"""Time that each layer's attention saves with fewer keys, and the speed of a whole plan, measured on the device."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from ...levers.downsample import Downsample
from ...levers.plan import LeverOrPlan, Plan
from ...tokens.grid import Grid
from ..measuring.attention_costs import LevelCost, step_times
from ..measuring.methods import plan_parts
from ..measuring.subjects import DenoiserCall
from ..timing import Timing, captured
from .layers import Choices, Factors, TunedLayers

TIMING = Timing(rounds=30, patience=30.0)  # everything is chosen by it
FACTORS = (2, 4, 3, 6, 1.5)  # that layers may have, in the order in which they are tried
LARGE, LEAST_KEYS = 4, 1024  # factors above this are tried where they leave so many keys


class LayerTimes(NamedTuple):
    """Milliseconds of a dense step, and the share of it that one layer of each level saves at each factor."""

    ms: float
    noise: float
    saved: dict[tuple[int, float], float]  # by level and factor

    def saved_by(self, level: int, factors: Factors) -> float:
        """The share of a run's time that a layer of this level saves with one factor, then another."""
        return sum(self.saved.get((level, factor), 0.0) for factor in factors) / 2

    def most(self, level: int) -> float:
        return max((saved for (own, _), saved in self.saved.items() if own == level), default=0.0)

    def speedup(self, layers: TunedLayers, choices: Choices) -> float:
        saved = sum(self.saved_by(layers.levels[name], factors) for name, factors in choices.items())
        return 1 / (1 - min(saved, 0.95))

    def bound(self, layers: TunedLayers) -> float:
        """The speed-up with every layer at the factor that saves most."""
        return 1 / (1 - min(sum(map(self.most, layers.levels.values())), 0.95))


def time_levels(call: DenoiserCall, levels: Sequence[LevelCost], timing: Timing = TIMING) -> dict[str, Any]:
    """Speed-up of every level at every factor that it bears, as records keep it."""
    wanted = [(one, factor) for one in levels for factor in FACTORS if is_worth_trying(factor, one.grid)]
    reductions: dict[LeverOrPlan, tuple[int, float]] = {
        Downsample([factor if other is one else 1 for other in levels]): (one.level, factor) for one, factor in wanted
    }
    found = step_times(call, list(reductions), preparation(call), timing)
    rows = [[*reductions[one], speedup] for one, speedup in found.speedups.items()]
    return {"ms": found.ms, "noise": found.noise, "speedups": rows}


def is_worth_trying(factor: float, grid: Grid) -> bool:
    return factor <= min(grid) and (factor <= LARGE or math.prod(grid) / factor**2 >= LEAST_KEYS)


def layer_times(found: dict[str, Any], layers: TunedLayers) -> LayerTimes:
    """The layers of a level share what it saves. A larger factor saves no less: what says otherwise is noise."""
    saved: dict[tuple[int, float], float] = {}
    for level in {level for level, *_ in found["speedups"]}:
        own = sorted((factor, 1 - 1 / speedup) for one, factor, speedup in found["speedups"] if one == level)
        for (factor, _), share in zip(own, never_falling([share for _, share in own]), strict=True):
            saved[level, factor] = max(0.0, share) / len(layers.at_level(level))
    return LayerTimes(found["ms"], found["noise"], saved)


def never_falling(values: Sequence[float]) -> list[float]:
    """The closest numbers, by least squares, of which none is below the one before: those that fall are averaged."""
    blocks: list[list[float]] = []
    for value in values:
        blocks.append([value])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    return [fmean(block) for block in blocks for _ in block]


def time_plan(call: DenoiserCall, plan: Plan, timing: Timing = TIMING) -> dict[str, float]:
    """How much faster than dense a run with this plan is: its parts are timed, as flat plans."""
    parts = plan_parts(plan)
    found = step_times(call, [part for _, part in parts], preparation(call), timing)
    time = sum(share / found.speedups[part] for share, part in parts)
    return {"speedup": 1 / time, "noise": found.noise}


def preparation(call: DenoiserCall) -> Any:
    """A GPU's own time is that of a captured graph; a CPU's is that of the call."""
    return captured if call.device.type == "cuda" else lambda call: call
