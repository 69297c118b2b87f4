"""One sampling run: how many steps are done, of how many."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass
class Run:
    """Progress of one sampling run.

    Attributes:
        step: The number of finished steps, and so the index of the one being made.
        steps: How many will be executed; None before the run is set up.
        timesteps: The length of the scheduler's schedule.
        starts: The indices in it at which the run may have begun: img2img skips the first ones.
    """

    step: int = 0
    steps: int | None = None
    timesteps: int = 0
    starts: set[int] = field(default_factory=set)

    @property
    def is_under_way(self) -> bool:
        return self.steps is not None and self.step < self.steps

    def begin(self, timesteps: int) -> None:
        """Sets the run up, to begin at any of the timesteps."""
        self.step, self.steps = 0, timesteps
        self.timesteps, self.starts = timesteps, set(range(timesteps))

    def finish_step(self, possible_indices: Callable[[], set[int]]) -> None:
        """Counts a finished step. `possible_indices` may read the device: it is called until the start is known."""
        if self.steps is None:
            return
        if len(self.starts) > 1:
            self.starts = self.starts & {index - self.step for index in possible_indices()} or {0}
            self.steps = self.timesteps - min(self.starts)
        self.step += 1


@dataclass
class TimestepRun:
    """Progress of a run that nobody drives, told from the timesteps that the model is called with.

    The same timestep again is the same step (guidance as two calls), a lower one is the next step, and one that goes
    back up begins a new run.
    """

    step: int = 0
    timestep: float | None = None

    def advance(self, timestep: float) -> int:
        """The step that a call with this timestep belongs to."""
        if self.timestep is not None and timestep != self.timestep:
            self.step = self.step + 1 if timestep < self.timestep else 0
        self.timestep = timestep
        return self.step


def first_number(timestep: Any) -> float | None:
    """The value of a timestep: a number, or the first of a tensor, which is read from its device."""
    if isinstance(timestep, Tensor):
        readable = timestep.ndim < 2 and timestep.numel() > 0 and not timestep.is_meta
        return float(timestep.flatten()[0]) if readable else None
    return float(timestep) if isinstance(timestep, (int, float)) else None
