"""A run: one pass through a schedule, where it began and where it is."""

import copy
import weakref
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from .noise import Noise, noise_of


class Position(NamedTuple):
    """Where in its run a call of a model is."""

    step: int
    steps: int | None = None  # None where nobody knows the end of the run
    run: "Run | None" = None  # None where no schedule is known


@dataclass
class FallingTimestep:
    """Steps told from the timesteps alone that a model is called with.

    The same timestep again is the same step (guidance as two calls), a lower one is the next step, and one that goes
    back up begins a new run.
    """

    step: int = 0
    timestep: float | None = None

    def advance(self, timestep: float | None) -> int:
        """The step that a call with this timestep belongs to; one that must not be read stays where it is."""
        if timestep is None:
            return self.step
        if self.timestep is not None and timestep != self.timestep:
            self.step = self.step + 1 if timestep < self.timestep else 0
        self.timestep = timestep
        return self.step


@dataclass(eq=False)
class Run:
    """One pass through the timesteps of a scheduler.

    Attributes:
        timesteps: The length of the schedule; 0 before it is set up.
        index: The place in it of the step that is being made.
        first: The place of its first step, as far as it is known: img2img skips those before.
        is_stepped: Whether the scheduler was asked for a step: loops of other samplers never ask.
        falling: The steps of such a loop.
        owns_copies: Whether a copied timestep that its thread calls a model with is surely of this run: not where the
            calls of the run have views, nor where its thread is in the middle of another run too.
        kept: What is kept from step to step, by the lever that keeps it. It is never pickled.
        scheduler: Whose run it is.
    """

    timesteps: int = 0
    index: int = 0
    first: int | None = None
    is_stepped: bool = False
    falling: FallingTimestep = field(default_factory=FallingTimestep)
    owns_copies: bool = True
    kept: dict[Any, Any] = field(default_factory=dict)
    scheduler: weakref.ref[Any] | None = None

    @property
    def is_under_way(self) -> bool:
        return self.index < self.timesteps

    @property
    def position(self) -> Position:
        first = self.first or 0
        return Position(self.index - first, self.timesteps - first, self)

    def begin(self, timesteps: int) -> None:
        self.__init__(timesteps, scheduler=self.scheduler)

    def noise(self) -> Noise | None:
        """The noise levels of its schedule, as far as the scheduler tells them: read from it, so not at every step."""
        scheduler = None if self.scheduler is None else self.scheduler()
        return None if scheduler is None else noise_of(scheduler)

    def enter(self, index: int) -> Position:
        """Goes to the step at this place of the schedule."""
        self.first = index if self.first is None else min(self.first, index)
        self.index = index
        return self.position

    def fall_to(self, timestep: float | None) -> None:
        """Goes to the step that a call with this timestep belongs to, as long as no scheduler counts them."""
        self.index = min((self.first or 0) + self.falling.advance(timestep), self.timesteps - 1)

    def finish(self, index: int) -> None:
        """The step at this place is made."""
        self.enter(index)
        self.index += 1
        self.is_stepped = True
        if not self.is_under_way:
            self.kept = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Run":
        twin = memo[id(self)] = Run(self.timesteps, self.index, self.first, self.is_stepped, copy.copy(self.falling))
        twin.kept, twin.scheduler = copy.deepcopy(self.kept, memo), self.scheduler
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"kept": {}, "scheduler": None}


def first_number(timestep: Any) -> float | None:
    """The value of a timestep: a number, or the first of a tensor, which is read from its device."""
    if isinstance(timestep, Tensor):
        readable = timestep.ndim < 2 and timestep.numel() > 0 and not timestep.is_meta
        return float(timestep.flatten()[0]) if readable else None
    return float(timestep) if isinstance(timestep, (int, float)) else None
