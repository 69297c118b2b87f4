"""Where in the run we are: the step, whether the window is open, whose turn it is.

The clock moves when the scheduler steps, when a host says so (`at`), or, with neither, with every call of the model.
"""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ..errors import invalid_value
from ..reductions import Reduction
from .scheduler import forget, is_set_up, listen


class Call(NamedTuple):
    """What is the same for all layers in one call of a model."""

    active: bool
    turn: int


class Clock:
    """Tells the hooks of one patch whether they are on and which turn it is.

    `active` is a Python bool: at most two graphs under torch.compile. The turn is kept as a number, and as a tensor on
    the model's device that is overwritten in place, so that compiled and replayed graphs see it move. Where a backward
    pass may still read it, another one takes its place.
    """

    def __init__(self, reduction: Reduction) -> None:
        self.reduction = reduction
        self.step, self.steps = 0, None
        self.timesteps = 0  # of the scheduler's last run
        self.starts: set[int] = set()  # at which of them that run may have begun
        self.calls = 0
        self.looping = False  # whether a scheduler was given for a loop that may be run again as it is
        self.active = True
        self.turn = 0
        self.turn_in_graphs = self.placed(torch.device("cpu"))
        self.lent = False  # whether a backward pass may still read that tensor
        self.captured = False  # whether a captured graph reads it, which knows no other
        self.told = False  # whether the user was told that there is nothing to do
        self.models: list[weakref.ref[Any]] = []
        self.pipelines: list[weakref.ref[Any]] = []
        self.schedulers: list[weakref.ref[Any]] = []

    def at(self, step: int, steps: int | None) -> None:
        """Moves to a step of so many; None where nobody knows how many."""
        self.step, self.steps = step, steps
        inside = not self.reduction.windowed or steps is None or self.reduction.is_on(step, steps)
        self.show(Call(inside, self.reduction.phase_index(step)))

    @property
    def call(self) -> Call:
        return Call(self.active, self.turn)

    def show(self, call: Call) -> None:
        """Lets the hooks see this call: the next one, or an earlier one that is computed again."""
        moved = call.turn != self.turn
        self.active, self.turn = call
        if moved and self.lent:
            self.turn_in_graphs, self.lent = self.placed(self.turn_in_graphs.device), False
        elif moved:
            self.turn_in_graphs.fill_(self.turn)

    def lend(self, device: torch.device) -> None:
        """The model is called: a backward pass may read its turn when the clock has long moved on."""
        self.captured |= is_captured(device)
        self.lent = not self.captured and (self.lent or torch.is_grad_enabled())

    def turn_on(self, device: torch.device) -> torch.Tensor | int:
        """The turn for a layer on this device: a number costs no kernel, but a graph would keep it for ever."""
        if torch.compiler.is_compiling() or is_captured(device):
            return self.turn_in_graphs.to(device)
        return self.turn

    def placed(self, device: torch.device) -> torch.Tensor:
        """The turn for graphs on this device, as a tensor that may be overwritten outside of inference mode."""
        with torch.inference_mode(False):
            return torch.full((1,), self.turn, dtype=torch.long, device=device)

    def begin(self, timesteps: int) -> None:
        """A run is set up. It may begin at any of the timesteps: img2img skips the first ones."""
        self.timesteps, self.starts = timesteps, set(range(timesteps))
        self.calls = 0
        self.at(0, timesteps)

    def stepped(self, positions: Callable[[], set[int]]) -> None:
        """One step is done, from one of these positions among the timesteps. Asked only until the start is known."""
        if self.steps is None:
            return
        steps = self.steps
        if len(self.starts) > 1:
            self.starts = self.starts & {position - self.step for position in positions()} or {0}
            steps = self.timesteps - min(self.starts)
        self.at(self.step + 1, steps)

    def driven(self, step: int, steps: int) -> None:
        """Somebody outside says where the run is, and knows better than the scheduler."""
        self.starts = set()
        self.at(step, steps)

    def called(self, device: torch.device) -> None:
        """The model is called. Where nobody drives the clock, that is a step."""
        self.follow()
        if self.turn_in_graphs.device != device:
            self.turn_in_graphs = self.placed(device)
        if self.looping and self.timesteps and self.step == self.steps:
            self.begin(self.timesteps)
        if self.steps is not None and self.step < self.steps:
            self.at(self.step, self.steps)  # a backward pass may have shown an earlier call
            return
        if self.reduction.windowed:
            window = (self.reduction.start, self.reduction.stop)
            allowed = "(0.0, 1.0) where the model is called outside of a run that todome can follow"
            remedy = (
                "Apply to the pipeline that runs it, or use apply(..., scheduler=...) and call set_timesteps before "
                "each run, or call patch.at(step, steps) before each step"
            )
            raise invalid_value("(start, stop)", window, allowed, remedy, RuntimeError)
        self.at(self.calls, None)
        self.calls += 1

    def watch(self, pipeline: Any) -> None:
        """Follows whatever scheduler the pipeline has at the time, also after it was swapped."""
        self.pipelines.append(weakref.ref(pipeline))
        scheduler = getattr(pipeline, "scheduler", None)
        if scheduler is not None:
            self.listen(scheduler, amid=is_set_up(scheduler))

    def follow(self) -> None:
        for pipeline in self.pipelines:
            scheduler = getattr(pipeline(), "scheduler", None)
            if scheduler is not None:
                self.listen(scheduler)

    def listen(self, scheduler: Any, amid: bool = True) -> None:
        """Moves with this scheduler from now on; `amid` the run it is set to, where it is set to one."""
        if any(known() is scheduler for known in self.schedulers):
            return
        self.schedulers.append(weakref.ref(scheduler))
        listen(scheduler, self)
        if amid and getattr(scheduler, "num_inference_steps", None):
            self.begin(len(scheduler.timesteps))

    def inherit(self, other: "Clock") -> None:
        """Follows what the patch it replaces followed: pipelines that share a model go on driving it."""
        self.looping = other.looping
        for pipeline in filter(None, (known() for known in other.pipelines)):
            self.watch(pipeline)
        for scheduler in filter(None, (known() for known in other.schedulers)):
            self.listen(scheduler, amid=False)
        if other.steps is not None:
            self.timesteps, self.starts = other.timesteps, other.starts
            self.at(other.step, other.steps)

    def left(self, model: Any) -> None:
        """No hook of this clock is on the model any more. After the last one, nothing is followed."""
        self.models = [known for known in self.models if known() is not None and known() is not model]
        if not self.models:
            for scheduler in filter(None, (known() for known in self.schedulers)):
                forget(scheduler, self)
            self.pipelines, self.schedulers = [], []

    def __getstate__(self) -> dict[str, Any]:
        # A copy of the model is another model: nothing that drives this one drives it.
        return self.__dict__ | {"models": [], "pipelines": [], "schedulers": []}


def is_captured(device: torch.device) -> bool:
    """Whether what happens on this device now goes into a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
