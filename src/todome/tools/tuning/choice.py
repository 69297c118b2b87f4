"""One option for each layer: the least cost within a budget. A knapsack with groups, solved on quantised weights."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

BINS = 4000  # that a budget is divided into


class Option(NamedTuple):
    """One of the things that a layer can be set to."""

    value: Any
    cost: float  # what is to be as small as possible, of all layers together
    weight: float  # what the budget is for


def cheapest(groups: Sequence[Sequence[Option]], budget: float, bins: int = BINS) -> list[Option] | None:
    """An option of each group, of the least total cost whose total weight is within the budget; None if there is none.

    Weights are rounded up to whole bins, so the budget always holds; the cost is at most the least one within a budget
    that is smaller by a bin for each group.
    """
    least = np.full(bins + 1, math.inf)  # by the bins that are used
    least[0] = 0
    chosen: list[np.ndarray] = []
    for group in groups:
        costs = np.stack([with_option(least, option, budget, bins) for option in group])  # (options, bins + 1)
        chosen.append(costs.argmin(0))
        least = costs.min(0)
    if not np.isfinite(least).any():
        return None
    return traced_back(groups, chosen, int(least.argmin()), budget, bins)


def with_option(least: np.ndarray, option: Option, budget: float, bins: int) -> np.ndarray:
    used = bins_of(option, budget, bins)
    after = np.full_like(least, math.inf)
    if used <= bins:
        after[used:] = least[: bins + 1 - used] + option.cost
    return after


def bins_of(option: Option, budget: float, bins: int) -> int:
    if option.weight <= 0:
        return 0
    return math.ceil(min(option.weight / budget, 2) * bins) if budget > 0 else bins + 1


def traced_back(
    groups: Sequence[Sequence[Option]], chosen: Sequence[np.ndarray], used: int, budget: float, bins: int
) -> list[Option]:
    """The options that led to so many used bins."""
    found = []
    for group, choices in zip(reversed(groups), reversed(chosen), strict=True):
        option = group[choices[used]]
        found.append(option)
        used -= bins_of(option, budget, bins)
    return found[::-1]
