"""A run: one pass through a schedule, where it began and where it is."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor


class Position(NamedTuple):
    """Where in its run a call of a model is."""

    step: int
    steps: int | None = None  # None where nobody knows the end of the run


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


@dataclass
class Run:
    """One pass through the timesteps of a scheduler.

    Attributes:
        timesteps: The length of the schedule; 0 before it is set up.
        index: The place in it of the step that is being made.
        first: The place of its first step, as far as it is known: img2img skips those before.
        is_stepped: Whether the scheduler was asked for a step: loops of other samplers never ask.
        falling: The steps of such a loop.
    """

    timesteps: int = 0
    index: int = 0
    first: int | None = None
    is_stepped: bool = False
    falling: FallingTimestep = field(default_factory=FallingTimestep)

    @property
    def is_under_way(self) -> bool:
        return self.index < self.timesteps

    @property
    def position(self) -> Position:
        first = self.first or 0
        return Position(self.index - first, self.timesteps - first)

    def begin(self, timesteps: int) -> None:
        self.__init__(timesteps)

    def enter(self, index: int) -> Position:
        """Goes to the step at this place of the schedule."""
        self.first = index if self.first is None else min(self.first, index)
        self.index = index
        return self.position

    def finish(self, index: int) -> None:
        """The step at this place is made."""
        self.enter(index)
        self.index += 1
        self.is_stepped = True


def first_number(timestep: Any) -> float | None:
    """The value of a timestep: a number, or the first of a tensor, which is read from its device."""
    if isinstance(timestep, Tensor):
        readable = timestep.ndim < 2 and timestep.numel() > 0 and not timestep.is_meta
        return float(timestep.flatten()[0]) if readable else None
    return float(timestep) if isinstance(timestep, (int, float)) else None
