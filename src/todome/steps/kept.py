"""What a run keeps from step to step, for each caller: the lines that partial steps are extrapolated from."""

import copy
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from .choosing import FEWEST, Schedule, cost_of
from .law import FULL, HIGHEST_SIGMA, STAGES, Law, curvature, decibels
from .lines import Line, moved
from .noise import Noise

FAR = 5.0  # dB below what was expected
TUNE = ": this model is not like the one that the expectation was measured on. Ask for more, or measure it: todome tune"


def signature_of(arguments: Any) -> Hashable:
    """What the calls of one caller have in common: the shapes, types and devices of what they are given."""
    if isinstance(arguments, Tensor):
        return tuple(arguments.shape), arguments.dtype, arguments.device
    if isinstance(arguments, Mapping):
        return tuple((name, signature_of(value)) for name, value in arguments.items())
    if isinstance(arguments, (list, tuple)):
        return tuple(map(signature_of, arguments))
    return arguments if isinstance(arguments, bool) else type(arguments)


class Caller:
    """The n-th call of a step on one model with arguments of one signature.

    Attributes:
        lines: What is extrapolated, by name: "output", "guidance", and the number of stages above a joint.
        schedule: The kinds of its steps.
        shares: The cost of each kind that it can have.
        guided: Whether its batch is the unconditional half, then the conditional one.
        form: Makes what the model gives of a tensor.
    """

    def __init__(self) -> None:
        self.lines: dict[Any, Line] = {}
        self.schedule: Schedule | None = None
        self.shares: Mapping[str, float] = {}
        self.guided: bool | None = None
        self.asked = 0  # how often the latents were
        self.loads_ahead = False  # whether no module may be left out
        self.form: Any = None
        self.dtype: Any = None  # of what it gives

    def note(self, place: float, values: dict[Any, Tensor]) -> None:
        """Commits what a full call has given. A value of another shape than the one before begins a new line."""
        for name, value in values.items():
            line = self.lines.get(name)
            fits = line is not None and line.value.shape == value.shape
            self.lines[name] = moved(line if fits else None, place, value.detach())

    def forget_before(self, place: float) -> None:
        self.lines = {name: Line(*line[:2]) for name, line in self.lines.items() if line.sigma == place}

    @property
    def word(self) -> str:
        return "" if self.schedule is None else self.schedule.word

    @property
    def is_dense(self) -> bool:
        """Whether everything is computed."""
        return set(self.word) <= {FULL}

    @property
    def cuts(self) -> list[int]:
        """The numbers of stages above which deep features are kept."""
        return sorted({STAGES[letter] for letter in self.word if STAGES.get(letter)})

    @property
    def keeps_both_halves(self) -> bool:
        """Whether deep features of the whole batch are kept, not of the conditional half alone."""
        return not self.guided or not set(self.word).isdisjoint("SDT")


class Report:
    """What was done in a run, and how good its predictions were. It holds numbers, some of them on the device."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise
        self.schedule: Schedule | None = None
        self.shares: Mapping[str, float] = {}  # the cost of each kind of step
        self.done: dict[int, str] = {}  # the kind of each step, of its first caller
        self.checks: list[tuple[float, float, Tensor]] = []  # sigma, error term, squared error of the output

    def check(self, line: Line, sigma: float, place: float, value: Tensor) -> None:
        """Compares the prediction for a full step with what was computed, without a look at the result."""
        if line.before is not None and place not in (line.sigma, line.before[0]):
            wrong = Law.wrong_by(*(math.log(max(one, 1e-4)) for one in (place, line.before[0], line.sigma)))
            error = (line.at(place).float() - value.float()).square().mean()
            self.checks.append((sigma, wrong, error))

    def lines(self) -> list[str]:
        """What was done, for people."""
        word = "".join(self.done[index] for index in sorted(self.done))
        if self.schedule is None or not word:
            return []
        if set(self.schedule.word) == {FULL}:
            few, asked = len(self.schedule.word) < FEWEST, math.isnan(self.schedule.keeps)
            why = ": so few steps gain nothing" if few else "" if asked else ": nothing is gained within the tolerance"
            return [f"reuse: all of {len(self.schedule.word)} steps are computed in full{why}"]
        full = f"{word.count(FULL)} of {len(word)} steps full, {cost_of(word, self.shares):.2f} of the computation"
        return [f"reuse: {word}", f"  {full}", *self.closeness()]

    def closeness(self) -> list[str]:
        """How close to dense, as expected and as the run itself tells."""
        lines = []
        if self.schedule is not None and math.isfinite(self.schedule.keeps):
            lines.append(f"  {self.schedule.keeps:.1f} dB to dense expected of many pictures")
        estimate, predicted = self.estimate, self.predicted
        if estimate is not None and self.schedule is not None:
            far = estimate < self.schedule.keeps - FAR
            lines[-1] += f", {estimate:.0f} dB as this run predicted itself" + TUNE * far
        if predicted is not None:
            lines.append(f"  what full steps computed was predicted within {predicted:.1f} dB")
        return lines

    @property
    def estimate(self) -> float | None:
        """How close this run is to dense, in dB, as far as the errors of its own predictions tell; read here.

        Each full step shows how much more, or less, this model bends than the one that the curves were measured on.
        """
        settled = [check for check in self.checks if check[0] <= HIGHEST_SIGMA]
        if not settled or self.schedule is None or not math.isfinite(self.schedule.keeps):
            return None
        bends = [float(error) / (wrong**2 * curvature(sigma)) for sigma, wrong, error in settled]
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
        self.callers: dict[tuple[Hashable, int], Caller] = {}
        self.index = first
        self.calls: Counter[Hashable] = Counter()  # that were made in this step, by signature
        self.calls_before: Counter[Hashable] | None = None

    def caller(self, index: int, signature: Hashable) -> Caller:
        """Whose call the next one with this signature is, in the step at this place of the schedule."""
        if index != self.index:
            self.end_step()
            self.index = index
        return self.callers.setdefault((signature, self.calls[signature]), Caller())

    def end_step(self) -> None:
        """Where there were more or fewer calls than in the step before, nothing from before this one is used."""
        before = self.calls if self.calls_before is None else self.calls_before
        for (signature, number), caller in list(self.callers.items()):
            if self.calls[signature] != before[signature]:
                caller.forget_before(self.noise.places[self.index])
            if not self.calls[signature]:
                del self.callers[signature, number]
        self.calls, self.calls_before = Counter(), self.calls

    def kind(self, caller: Caller, index: int) -> str:
        """The kind of the step at this place, as it was chosen."""
        step = index - self.first
        return caller.word[step] if step < len(caller.word) else FULL

    def has(self, caller: Caller, names: Iterable[Any]) -> bool:
        """Whether a caller has lines through values that are no older than those of the last two full steps."""
        before = range(self.first, self.index)
        full = [self.noise.places[place] for place in before if self.kind(caller, place) == FULL]
        *_, before, last = (math.inf, math.inf, *dict.fromkeys(full))
        lines = [caller.lines.get(name) for name in names]
        return all(line and line.before and line.sigma <= last and line.before[0] <= before for line in lines)

    def tell(self, caller: Caller, letter: str) -> None:
        """Reports the kind of a step, which is that of its first call."""
        if not self.calls:
            self.report.done[self.index] = letter
            self.report.schedule, self.report.shares = caller.schedule, caller.shares

    def note(self, caller: Caller, index: int, values: dict[Any, Tensor]) -> None:
        """Commits what a full call has given. After the last step nothing will be asked for."""
        if index < len(self.noise.places) - 1:
            caller.note(self.noise.places[index], values)
        else:
            caller.lines = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Kept":
        """A run of its own from here on. Values are never overwritten, so they are shared."""
        twin = memo[id(self)] = copy.copy(self)
        twin.report, twin.callers, twin.calls = copy.copy(self.report), {}, self.calls.copy()
        twin.report.done, twin.report.checks = dict(self.report.done), list(self.report.checks)
        for key, caller in list(self.callers.items()):
            twin.callers[key] = copy.copy(caller)
            twin.callers[key].lines = dict(caller.lines)
        return twin
