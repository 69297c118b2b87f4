"""What a run keeps from step to step, for each caller: the lines that partial steps are extrapolated from."""

import copy
import math
from collections.abc import Hashable
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from .choosing import Schedule
from .law import FULL, STAGES, Law, curvature, decibels
from .lines import Line, moved
from .noise import Noise


class Caller:
    """The n-th call of a step on one model with one shape.

    Attributes:
        lines: What is extrapolated, by name: "output", "guidance", and the number of stages above a joint.
        guided: Whether its batch is the unconditional half, then the conditional one.
        form: Makes what the model gives of a tensor.
    """

    def __init__(self) -> None:
        self.lines: dict[Any, Line] = {}
        self.guided: bool | None = None
        self.asked = 0  # how often the latents were
        self.form: Any = None
        self.dtype: Any = None  # of what it gives

    def note(self, sigma: float, values: dict[Any, Tensor]) -> None:
        """Commits what a full call has given."""
        self.lines |= {name: moved(self.lines.get(name), sigma, value.detach()) for name, value in values.items()}

    def has(self, *names: Any) -> bool:
        return all(name in self.lines and self.lines[name].is_straight for name in names)


class Report:
    """What was done in a run, and how good its predictions were. It holds numbers, some of them on the device."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise
        self.schedule: Schedule | None = None
        self.done: dict[int, str] = {}  # the kind of each step, of its first caller
        self.checks: list[tuple[float, float, Tensor]] = []  # sigma, error term, squared error of the output
        self.why_full = ""

    def check(self, line: Line, sigma: float, place: float, value: Tensor) -> None:
        """Compares the prediction for a full step with what was computed, without a look at the result."""
        if line.before is not None and place not in (line.sigma, line.before[0]):
            wrong = Law.wrong_by(*(math.log(max(one, 1e-4)) for one in (place, line.before[0], line.sigma)))
            error = (line.at(place).float() - value.float()).square().mean()
            self.checks.append((sigma, wrong, error))

    def lines(self) -> list[str]:
        """What was done, for people."""
        word = "".join(self.done[index] for index in sorted(self.done))
        schedule = self.schedule
        if schedule is None or not word:
            return []
        if set(schedule.word) == {FULL}:
            return [
                f"reuse: all of {len(schedule.word)} steps are computed: nothing can be gained within the tolerance"
            ]
        full = f"{word.count(FULL)} of {len(word)} steps full, {schedule.cost:.2f} of the computation"
        expected = "" if math.isnan(schedule.keeps) else f", {schedule.keeps:.1f} dB expected"
        predicted = self.predicted
        checked = "" if predicted is None else f"; predictions of full steps were within {predicted:.1f} dB"
        return [f"reuse: {word}: {full}{expected}{checked}"]

    @property
    def estimate(self) -> float | None:
        """How close this run is to dense, in dB, as far as the errors of its own predictions tell; read here.

        Each full step shows how much more, or less, this model bends than the one that the curves were measured on.
        """
        if not self.checks or self.schedule is None or not math.isfinite(self.schedule.keeps):
            return None
        errors = torch.stack([error for *_, error in self.checks]).tolist()
        bends = [
            error / (wrong**2 * curvature(sigma)) for (sigma, wrong, _), error in zip(self.checks, errors, strict=True)
        ]
        return self.schedule.keeps - 10 * math.log10(max(fmean(bends), 1e-9))

    @property
    def predicted(self) -> float | None:
        """How close the predictions were, in dB to what was computed, of the noise; read from the device here."""
        if not self.checks:
            return None
        return decibels(float(torch.stack([error for *_, error in self.checks]).mean()))


class Kept:
    """What a run keeps for one model. It belongs to the run, is copied with it and ends with it."""

    def __init__(self, noise: Noise, first: int) -> None:
        self.noise, self.first, self.report = noise, first, Report(noise)
        self.schedule: Schedule | None = None
        self.guided = False
        self.callers: dict[Hashable, Caller] = {}
        self.index, self.calls, self.calls_before = first, 0, 0

    def caller(self, index: int, signature: Hashable) -> tuple[int, Caller]:
        """The caller of a call in the step at this place of the schedule, and its number in the step.

        A step of fewer or more calls than the one before is of another loop: nothing from before it is used.
        """
        if index != self.index:
            if self.calls_before not in (0, self.calls):
                self.callers.clear()
            self.index, self.calls, self.calls_before = index, 0, self.calls
        self.calls += 1
        return self.calls, self.callers.setdefault((self.calls, signature), Caller())

    def kind(self, index: int) -> str:
        """The kind of the step at this place."""
        step = index - self.first
        return FULL if self.schedule is None or step >= len(self.schedule.word) else self.schedule.word[step]

    @property
    def is_dense(self) -> bool:
        """Whether everything is computed."""
        return self.schedule is not None and set(self.schedule.word) == {FULL}

    @property
    def cuts(self) -> list[int]:
        """The numbers of stages above which deep features are kept."""
        return sorted(
            {STAGES[letter] for letter in (self.schedule.word if self.schedule else "") if STAGES.get(letter)}
        )

    @property
    def whole_rows(self) -> bool:
        """Whether deep features of both halves are kept."""
        return not self.guided or not set(self.schedule.word if self.schedule else "").isdisjoint("SDT")

    def __deepcopy__(self, memo: dict[int, Any]) -> "Kept":
        """A run of its own from here on. Values are never overwritten, so they are shared."""
        twin = memo[id(self)] = copy.copy(self)
        twin.report, twin.callers = copy.copy(self.report), {}
        twin.report.done, twin.report.checks = dict(self.report.done), list(self.report.checks)
        for key, caller in self.callers.items():
            twin.callers[key] = copy.copy(caller)
            twin.callers[key].lines = dict(caller.lines)
        return twin
