"""The cheapest schedule that keeps a tolerance: dynamic programming over the last two full steps.

For a price of error the best kind of each partial step follows from those two alone, so the best schedule is a shortest
path; the price is then raised until the tolerance holds, as with any budget (Lagrange).
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ..levers.reuse import Reuse
from .law import CONDITIONAL, FULL, HIGHEST_SIGMA, STAGES, Law, decibels

FEWEST = 8  # steps of a run: with fewer there is nothing to gain
LONGEST = 4  # partial steps in a row
ROUNDS = 40  # of the search for the price


class Schedule(NamedTuple):
    """A kind for every step, as letters, and what it is expected to give."""

    word: str
    keeps: float  # dB, expected; infinite where everything is computed
    cost: float  # share of the computation of full steps


class Places(NamedTuple):
    """The distinct noise levels of a run, and how many calls there are at each."""

    sigmas: tuple[float, ...]
    calls: tuple[int, ...]


def places_of(sigmas: Sequence[float]) -> Places:
    """Samplers of second order call the model twice at a noise level: both calls are of one kind."""
    found: list[float] = []
    calls: list[int] = []
    for sigma in sigmas:
        if found and found[-1] == sigma:
            calls[-1] += 1
        else:
            found.append(sigma)
            calls.append(1)
    return Places(tuple(found), tuple(calls))


@lru_cache(256)
def choose(
    sigmas: tuple[float, ...], shares: tuple[tuple[str, float], ...], weights: "Weights", keep: float
) -> Schedule:
    """The cheapest schedule for these noise levels that is expected to keep so many dB."""
    known = tuple((letter, share) for letter, share in shares if letter in dict(weights.law.curves))
    places = places_of(sigmas)
    if len(sigmas) < FEWEST or not known:
        return whole(sigmas)
    search = Search(places, known, weights)
    best = search.refined(search.within(10 ** (-keep / 10)), 10 ** (-keep / 10))
    word = "".join(letter * count for letter, count in zip(best, places.calls, strict=True))
    error = weights.law.error(word, sigmas, weights.guidance, weights.order)
    return Schedule(word, decibels(error), cost_of(word, dict(shares)))


def by_hand(lever: Reuse, sigmas: Sequence[float], skipped: int, shares: Mapping[str, float], guided: bool) -> Schedule:
    """The schedule that a user asks for, of a run that begins after so many steps of its schedule."""
    every, warmup, stages = lever.every or 1, lever.warmup or 0.0, lever.stages or 0
    halves = guided and lever.guidance
    letter = next((one for one, own in STAGES.items() if own == stages and (one in CONDITIONAL) == halves), "")
    letter = "o" if stages == 0 else letter if letter in shares else "f" if halves else FULL
    count = len(sigmas)
    if count < FEWEST or letter not in shares:
        return whole(sigmas)
    settled = max(2, math.ceil(warmup * (skipped + count) - 1e-6) - skipped)
    is_full = [step < settled or (step - settled + 1) % every == 0 or step == count - 1 for step in range(count)]
    word = "".join(FULL if full else letter for full in is_full)
    return Schedule(word, math.nan, cost_of(word, shares))


def whole(sigmas: Sequence[float]) -> Schedule:
    """Everything is computed."""
    return Schedule(FULL * len(sigmas), math.inf, 1.0)


def cost_of(word: str, shares: Mapping[str, float]) -> float:
    return sum(1.0 if letter == FULL else shares[letter] for letter in word) / len(word)


class Weights(NamedTuple):
    """What the errors of a run weigh: the law of the model, the guidance scale, the order of the solver."""

    law: Law
    guidance: float
    order: int

    def weight(self, letter: str, sigma: float) -> float:
        return self.law.weight(letter, sigma, self.guidance, self.order)


class Search:
    """Shortest paths over the full steps of a run.

    `errors` and `prices` are (places, last gap, place after the last full step, kinds): what a partial step of a kind
    adds, when the last full step is so many places before it, and the one before that by the last gap.
    """

    def __init__(self, places: Places, shares: Sequence[tuple[str, float]], weights: Weights) -> None:
        self.count, self.calls = len(places.sigmas), torch.tensor(places.calls, dtype=torch.double)
        self.letters = [letter for letter, _ in shares]
        self.prices = torch.tensor([share for _, share in shares], dtype=torch.double)
        self.errors = self.tabulate(places, weights)

    def tabulate(self, places: Places, weights: Weights) -> Tensor:
        x = torch.tensor(places.sigmas, dtype=torch.double).log()
        table = [[weights.weight(letter, sigma) for letter in self.letters] for sigma in places.sigmas]
        heights = torch.tensor(table, dtype=torch.double)
        errors = torch.full((self.count, LONGEST + 1, LONGEST, len(self.letters)), math.inf, dtype=torch.double)
        for gap in range(1, LONGEST + 2):
            for after in range(1, LONGEST + 1):
                now = torch.arange(gap + after, self.count)
                wrong = (x[now] - x[now - after - gap]) * (x[now] - x[now - after]) / 2
                errors[now, gap - 1, after - 1] = wrong[:, None] ** 2 * heights[now] * self.calls[now, None]
        errors[x > math.log(HIGHEST_SIGMA)] = math.inf
        errors[-1:] = math.inf  # the last step is full
        return errors

    def within(self, most: float) -> str:
        """The cheapest word found whose error is at most so much."""
        word, low, high = FULL * self.count, 0.0, 60.0  # of the logarithm of the price
        for _ in range(ROUNDS):
            price = (low + high) / 2
            found, error = self.cheapest(math.exp(price))
            if error <= most:
                word, high = found, price
            else:
                low = price
        return word

    def refined(self, word: str, most: float) -> str:
        """The same full steps, with cheaper kinds between them where the tolerance leaves room."""
        options = {place: self.options(word, place) for place in range(self.count) if word[place] != FULL}
        room = most - sum(options[place][word[place]][1] for place in options)
        while True:
            swaps = [
                (options[place][word[place]][0] - cost, place, letter, error - options[place][word[place]][1])
                for place in options
                for letter, (cost, error) in options[place].items()
                if cost < options[place][word[place]][0] and error - options[place][word[place]][1] <= room
            ]
            if not swaps:
                return word
            _, place, letter, more = max(swaps)
            word, room = word[:place] + letter + word[place + 1 :], room - more

    def options(self, word: str, place: int) -> dict[str, tuple[float, float]]:
        """The cost and the error of each kind in a partial step of a word."""
        before, last = [full for full in range(place) if word[full] == FULL][-2:]
        errors = self.errors[place, last - before - 1, place - last - 1].tolist()
        costs = (self.prices * self.calls[place]).tolist()
        return dict(zip(self.letters, zip(costs, errors, strict=True), strict=True))

    def cheapest(self, price: float) -> tuple[str, float]:
        """The word of least cost where error has this price, and its error."""
        values, kinds = (self.prices * self.calls[:, None, None, None] + price * self.errors).min(-1)
        values = torch.where(values.isfinite(), values, torch.inf).tolist()
        kinds, calls = kinds.tolist(), self.calls.tolist()
        start = calls[0] + calls[1] if self.count > 1 else calls[0]
        best: dict[tuple[int, int], tuple[float, tuple[int, int] | None]] = {(1, 1): (start, None)}
        for last in range(1, self.count):
            for gap in range(1, LONGEST + 2):
                known = best.get((last, gap))
                if known is None:
                    continue
                cost = known[0]
                for after in range(1, LONGEST + 2):
                    new = last + after
                    if new >= self.count:
                        break
                    if after > 1:
                        cost += values[new - 1][gap - 1][after - 2]
                    if cost == math.inf:
                        break
                    total = cost + calls[new]
                    if total < best.get((new, after), (math.inf, None))[0]:
                        best[new, after] = (total, (last, gap))
        return self.read(best, kinds)

    def read(self, best: dict, kinds: list) -> tuple[str, float]:
        """The word along the best path to the last place."""
        ends = [key for key in best if key[0] == self.count - 1]
        if not ends:
            return FULL * self.count, 0.0
        key, word, error = min(ends, key=lambda end: best[end][0]), [FULL] * self.count, 0.0
        while (before := best[key][1]) is not None:
            for after in range(1, key[0] - before[0]):
                place = before[0] + after
                kind = kinds[place][before[1] - 1][after - 1]
                word[place] = self.letters[kind]
                error += float(self.errors[place, before[1] - 1, after - 1, kind])
            key = before
        return "".join(word), error
