"""Search for a plan: chosen by what layers cost and change, drawn on held-out prompts, chosen again by what that shows.

What single layers change is measured in latents, in cheap runs; what is allowed is an error of pictures, in whole runs.
What one says of the other is told by the drawings before: the first is of every layer at factor 2.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ...levers.plan import Plan
from .choice import Option, cheapest
from .drawings import Drawings
from .goal import Goal
from .layer_times import LayerTimes
from .layers import DENSE, Choices, TunedLayers
from .options import Options
from .records import Records
from .sensitivity import Sensitivity

LEAST_ROUNDS = 2  # of drawing and choosing again: the first tells the scale of the errors
NEARBY, TRIED = 1.1, 30  # times the likeliest error, where its choice was drawn before, and how often
MARGIN = 1.05  # times the error that is expected: half of the plans would miss the budget without it
FASTER = 1.002  # times as fast as the best plan so far, that another is worth drawing
LEAST = 1e-12  # error that is told from none


class Errors(NamedTuple):
    """The errors of a trial: of the latents, as far as single layers tell, and of the pictures that were drawn."""

    latents: float
    pictures: float


@dataclass(frozen=True)
class Trial:
    """A choice that was drawn on held-out prompts."""

    choices: Choices
    errors: list[float]  # of each picture
    speedup: float  # measured
    noise: float  # of that

    @property
    def error(self) -> float:
        return statistics.fmean(self.errors)


@dataclass
class Search:
    """Everything that is known of a model, and the trials that were made with it."""

    layers: TunedLayers
    times: LayerTimes
    sensitivity: Sensitivity
    drawings: Drawings
    records: Records
    time_plan: Callable[[Plan], dict[str, float]]
    options: Options = field(default_factory=Options)
    trials: list[Trial] = field(default_factory=list)

    def run(self, goal: Goal, may_go_on: Callable[[], bool]) -> Trial | None:
        """The best trial that reaches the goal, of these and of the records; None where none does."""
        following = self.run_keep(goal) if goal.keep is not None else self.run_faster(goal)
        least = LEAST_ROUNDS
        if not self.is_measured():
            following, least = partial(self.next_uniform, goal), 0
        choices = following(None)
        while choices and len(self.trials) < self.options.rounds and (len(self.trials) < least or may_go_on()):
            self.trials.append(self.draw(choices))
            choices = following(self.trials[-1])
        # those of other budgets only now: if they led the search, the same call again would draw other plans
        return self.best(goal, [*self.trials, *self.drawn_before()])

    def best(self, goal: Goal, trials: Sequence[Trial]) -> Trial | None:
        if goal.keep is not None:
            kept = [trial for trial in trials if trial.error <= goal.error]
            # not by the measured speed: the fastest of several would be the luckiest
            return max(kept, key=lambda trial: self.times.speedup(self.layers, trial.choices), default=None)
        fast = [trial for trial in trials if trial.speedup >= (goal.faster or 1)]
        return min(fast, key=lambda trial: trial.error, default=None)

    def drawn_before(self) -> Iterator[Trial]:
        """Every trial of the records, also those of other budgets."""
        speeds = self.records.every("speed-up")
        for key, (choices, errors) in self.records.every("picture errors").items():
            if key in speeds:
                named = {name: (now, later) for name, (now, later) in choices.items()}
                yield Trial(named, errors, **speeds[key][1])

    def draw(self, choices: Choices) -> Trial:
        plan = self.layers.plan(choices)
        errors = self.records.measure({"picture errors": choices}, lambda: self.drawings.picture_errors(plan))
        speed = self.records.measure({"speed-up": choices}, lambda: self.time_plan(plan))
        return Trial(choices, errors, **speed)

    def tried(self, choices: Choices) -> Trial | None:
        return next((trial for trial in self.trials if trial.choices == choices), None)

    # The fastest within an error

    def run_keep(self, goal: Goal) -> Callable[[Trial | None], Choices | None]:
        def following(trial: Trial | None) -> Choices | None:
            if trial is None:
                return self.everywhere(2)
            faster = (self.fastest(error) for error in self.errors_to_try(goal))
            return next((one for one in faster if self.tried(one) is None and self.is_faster(one, goal)), None)

        return following

    def errors_to_try(self, goal: Goal) -> Iterator[float]:
        """Errors of latents at which pictures should keep the goal, by the trials around it; the likeliest first."""
        below, above = self.around(goal)
        near = below or above
        if near is None:
            return
        missed = 0 if below else len(self.trials) - 1
        allowed = goal.error / MARGIN**2**missed  # ever further away, or else all rounds would miss the goal
        slope = 1.0  # of the logarithms
        if below and above:
            slope = math.log(above.latents / below.latents) / math.log(above.pictures / below.pictures)
        likely = near.latents * (allowed / near.pictures) ** slope
        errors = [likely * NEARBY**times for times in (*range(0, -TRIED, -1), *range(1, TRIED))]
        yield from (error for error in errors if above is None or error < above.latents)

    def around(self, goal: Goal) -> tuple[Errors | None, Errors | None]:
        """The errors of the boldest trial that kept the goal, and of the next one that missed it.

        The first trial, all layers alike, only tells where to begin: chosen layers can differ from it by several dB.
        """
        trials = self.trials[1:] or self.trials
        latents = [self.sensitivity.total(one.choices) for one in trials]
        known = sorted(Errors(max(e, LEAST), max(one.error, LEAST)) for e, one in zip(latents, trials, strict=True))
        below = max((one for one in known if one.pictures <= goal.error), default=None)
        missed = [one for one in known if one.pictures > goal.error and (not below or one.latents > below.latents)]
        return below, min(missed, default=None)

    def is_faster(self, choices: Choices, goal: Goal) -> bool:
        """Whether it is expected to be faster than the best trial so far."""
        best = self.best(goal, self.trials)
        saved = partial(self.times.speedup, self.layers)
        return bool(choices) and (best is None or saved(choices) > FASTER * saved(best.choices))

    def fastest(self, latent_error: float) -> Choices:
        """The choice that saves most time within an error of latents, as far as single layers tell."""
        groups = [
            [Option(f, -self.times.saved_by(self.layers.levels[name], f), self.error(name, f)) for f in factors]
            for name, factors in self.candidates().items()
        ]
        return self.named(cheapest(groups, latent_error))

    # The closest at a speed

    def run_faster(self, goal: Goal) -> Callable[[Trial | None], Choices | None]:
        wanted = goal.faster or 1.0
        aimed = wanted  # by the sum of what layers save, which need not be what all of them save together

        def following(trial: Trial | None) -> Choices | None:
            nonlocal aimed
            if trial is not None:
                aimed *= wanted / trial.speedup
            choices = self.closest(aimed)
            return None if choices and self.tried(choices) else choices

        return following

    def closest(self, speedup: float) -> Choices | None:
        """The choice that changes least of those that are so fast, as far as single layers tell; None if none is."""
        groups = [
            [Option(f, self.error(name, f), self.unsaved(self.layers.levels[name], f)) for f in factors]
            for name, factors in self.candidates().items()
        ]
        most = sum(self.times.most(self.layers.levels[name]) for name in self.candidates())
        room = most - (1 - 1 / speedup)  # of what could be saved, that need not be
        found = cheapest(groups, room) if room >= 0 else None
        return None if found is None else self.named(found)

    def unsaved(self, level: int, factors: tuple[float, float]) -> float:
        return self.times.most(level) - self.times.saved_by(level, factors)

    # Without measured layers

    def is_measured(self) -> bool:
        """Whether every layer that is worth reducing was, at factor 2: there may not have been time for it."""
        return all(self.sensitivity.error(name, (2, 2)) is not None for name in self.everywhere(2))

    def next_uniform(self, goal: Goal, trial: Trial | None) -> Choices | None:
        """The level that saves most at factor 2 first: then more while the goal leaves room for it, or else less."""
        known = self.uniform_choices()
        if trial is None:
            return next((one for one in known if (2, 2) in one.values()), None)
        bolder = trial.error <= goal.error if goal.keep is not None else trial.speedup < (goal.faster or 1)
        following = known.index(trial.choices) + (1 if bolder else -1)
        choices = known[following] if 0 <= following < len(known) else None
        return choices if choices and self.tried(choices) is None else None

    def uniform_choices(self) -> list[Choices]:
        """One factor for each level, ever larger: for the level that saves most first, then for the next one too."""
        worth = sorted({level for level, _ in self.times.saved if self.times.most(level) >= self.options.worth})
        worth.sort(key=lambda level: -self.times.most(level) * len(self.layers.at_level(level)))
        found: list[Choices] = [{}]
        for level in worth:
            for factor in sorted(factor for own, factor in self.times.saved if own == level):
                found.append({**found[-1], **dict.fromkeys(self.layers.at_level(level), (factor, factor))})
        return found[1:]

    # What there is to choose from

    def candidates(self) -> dict[str, list[tuple[float, float]]]:
        found = {name: self.sensitivity.candidates(name) for name in self.layers.levels}
        return {name: factors for name, factors in found.items() if factors != [DENSE]}

    def error(self, name: str, factors: tuple[float, float]) -> float:
        return self.sensitivity.error(name, factors) or 0.0

    def everywhere(self, factor: float) -> Choices:
        worth = [name for name, level in self.layers.levels.items() if self.times.most(level) >= self.options.worth]
        known = [name for name in worth if (self.layers.levels[name], factor) in self.times.saved]
        return dict.fromkeys(known, (factor, factor))

    def named(self, chosen: list[Option] | None) -> Choices:
        pairs = zip(self.candidates(), chosen or [], strict=False)
        return {name: option.value for name, option in pairs if option.value != DENSE}
