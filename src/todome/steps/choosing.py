"""The cheapest schedule that keeps a tolerance: dynamic programming over the last two full steps.

The error of a partial step follows from its kind and from the last two full steps alone. So of all beginnings of a
schedule that cost the same and have their last two full steps in the same places, only that of least error matters.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from ..levers.reuse import Reuse
from .law import CONDITIONAL, FULL, HIGHEST_SIGMA, STAGES, Law, decibels

FEWEST = 8  # noise levels of a run: with fewer there is nothing to gain
LONGEST = 4  # partial steps in a row
UNITS = 2000  # that costs are told apart by: shares of the computation of a run


class Schedule(NamedTuple):
    """A kind for every step, as letters, and what it is expected to give."""

    word: str
    keeps: float  # dB, expected; infinite where everything is computed
    cost: float  # share of the computation of full steps


class NoiseLevel(NamedTuple):
    """Samplers of second order call the model twice at a noise level: both calls are of one kind."""

    sigma: float
    calls: int


class Weights(NamedTuple):
    """What the errors of a run weigh: the law of the model, the guidance scale, the order of the solver."""

    law: Law
    guidance: float
    order: int

    def weight(self, letter: str, sigma: float) -> float:
        return self.law.weight(letter, sigma, self.guidance, self.order)


@lru_cache(256)
def choose(sigmas: tuple[float, ...], shares: tuple[tuple[str, float], ...], weights: Weights, keep: float) -> Schedule:
    """The cheapest schedule for these noise levels that is expected to keep so many dB."""
    levels, known = noise_levels(sigmas), dict(weights.law.curves)
    kinds = {letter: share for letter, share in shares if letter in known and share < 1}
    if len(levels) < FEWEST or not kinds:
        return whole(sigmas)
    letters = Search(levels, kinds, weights).within(10 ** (-keep / 10))
    word = "".join(letter * level.calls for letter, level in zip(letters, levels, strict=True))
    error = weights.law.error(word, sigmas, weights.guidance, weights.order)
    return Schedule(word, decibels(error), cost_of(word, kinds))


def by_hand(lever: Reuse, sigmas: Sequence[float], skipped: int, shares: Mapping[str, float], guided: bool) -> Schedule:
    """The schedule that a user asks for, of a run that begins after so many calls of its schedule."""
    letter = kind_by_hand(lever.stages or 0, guided and lever.guidance, shares)
    levels, every = noise_levels(sigmas), lever.every or 1
    if len(levels) < FEWEST or letter == FULL or every == 1:
        return whole(sigmas)
    begins = [sum(level.calls for level in levels[:place]) for place in range(len(levels))]
    warmup = (lever.warmup or 0.0) * (skipped + len(sigmas)) - skipped
    settled = max(2, sum(begin < warmup - 1e-6 for begin in begins))
    word = ""
    for place, level in enumerate(levels):
        is_full = place < settled or (place - settled + 1) % every == 0 or level is levels[-1]
        word += (FULL if is_full else letter) * level.calls
    return Schedule(word, math.nan, cost_of(word, shares))


def kind_by_hand(stages: int, halves: bool, shares: Mapping[str, float]) -> str:
    """The kind of partial steps that compute so many stages: all of them, where the model has no more."""
    if stages == 0 or not any(STAGES.get(letter) for letter in shares):
        return "o"
    alike = [letter for letter in shares if STAGES.get(letter) == stages and (letter in CONDITIONAL) == halves]
    return alike[0] if alike else "f" if halves else FULL


def noise_levels(sigmas: Sequence[float]) -> list[NoiseLevel]:
    return [NoiseLevel(sigma, len(list(calls))) for sigma, calls in groupby(sigmas)]


def whole(sigmas: Sequence[float]) -> Schedule:
    """Everything is computed."""
    return Schedule(FULL * len(sigmas), math.inf, 1.0)


def cost_of(word: str, shares: Mapping[str, float]) -> float:
    return sum(1.0 if letter == FULL else shares[letter] for letter in word) / len(word)


class Search:
    """Dynamic programming over the noise levels of a run.

    Beginnings of schedules are told apart by (gap, after, cost): the last full step was `after` steps ago, the one
    before it `gap` + 1 steps before that, and it all cost so many units.
    """

    def __init__(self, levels: Sequence[NoiseLevel], kinds: Mapping[str, float], weights: Weights) -> None:
        unit = 1 / max(1, UNITS // sum(level.calls for level in levels))  # of a full call
        self.levels, self.letters = levels, list(kinds)
        self.full = [round(level.calls / unit) for level in levels]
        self.partial = [[round(share * level.calls / unit) for share in kinds.values()] for level in levels]
        self.errors = errors_of(levels, self.letters, weights)

    def within(self, most: float) -> str:
        """The cheapest word whose error is at most so much."""
        size = (LONGEST + 1, LONGEST + 1, self.full[0] + self.full[1] + 1)
        least = torch.full(size, math.inf, dtype=torch.double, device="cpu")  # whatever the default is
        least[0, 0, -1] = 0.0
        choices = []
        for place in range(2, len(self.levels)):
            least, chosen = self.one_more(place, least)
            choices.append(chosen)
        ends = least[:, 0].min(0)  # the last step is full
        cost = int((ends.values <= most).nonzero()[0])
        return self.read(choices, int(ends.indices[cost]), cost)

    def one_more(self, place: int, least: Tensor) -> tuple[Tensor, Tensor]:
        """The least errors after one more step, and the choices that led there: gaps before a full step, else kinds."""
        *sizes, width = least.shape
        cost = self.full[place]
        new = least.new_full((*sizes, width + cost), math.inf)
        chosen = torch.zeros_like(new, dtype=torch.uint8)
        new[:, 0, cost:], chosen[:, 0, cost:] = least.min(0)
        for kind, cost in enumerate(self.partial[place]):
            found, known = least[:, :-1] + self.errors[place, kind, :, :, None], new[:, 1:, cost : cost + width]
            chosen[:, 1:, cost : cost + width].masked_fill_(found < known, kind)
            torch.minimum(found, known, out=known)
        return new, chosen

    def read(self, choices: Sequence[Tensor], gap: int, cost: int) -> str:
        """The word whose last step is full, so many places after the full one before, and that cost so much."""
        word, after = "", 0
        for place in range(len(self.levels) - 1, 1, -1):
            choice = int(choices[place - 2][gap, after, cost])
            if after == 0:
                word, cost = FULL + word, cost - self.full[place]
                gap, after = choice, gap
            else:
                word, cost = self.letters[choice] + word, cost - self.partial[place][choice]
                after -= 1
        return FULL * 2 + word


def errors_of(levels: Sequence[NoiseLevel], letters: Sequence[str], weights: Weights) -> Tensor:
    """What partial steps add, by (place, kind, gap, after); infinite where there may be none."""
    x, reach = [math.log(level.sigma) for level in levels], range(1, LONGEST + 1)

    def squared(place: int, gap: int, after: int) -> float:
        last, before = place - after, place - after - gap
        is_last = place == len(levels) - 1
        if before < 0 or is_last or levels[place].sigma > HIGHEST_SIGMA:
            return math.inf
        return Law.wrong_by(x[place], x[before], x[last]) ** 2

    gaps = range(1, LONGEST + 2)
    terms = [[[squared(place, gap, after) for after in reach] for gap in gaps] for place in range(len(levels))]
    heights = [[level.calls * weights.weight(letter, level.sigma) for letter in letters] for level in levels]
    wrong, heavy = (torch.tensor(numbers, dtype=torch.double, device="cpu") for numbers in (terms, heights))
    return wrong[:, None] * heavy[:, :, None, None]
