"""What a reduction does at each step: whether it is on, which member of each cell is kept, which settings hold."""

from typing import Any, NamedTuple
from weakref import WeakSet

from ..reductions import Reduction
from .run import Position
from .runs import Runs


class Call(NamedTuple):
    """What is the same for all layers in one call of a model."""

    active: bool
    phase_index: int
    late: bool  # whether the settings of later hold


class Clock:
    """Tells the hooks of one patch, at each call of a model, whether they are on and which phase it is."""

    def __init__(self, reduction: Reduction, runs: Runs | None = None) -> None:
        self.reduction, self.runs = reduction, runs or Runs()
        self.runs.on_move = self.show_graphs
        self.contexts: WeakSet[Any] = WeakSet()  # what the hooks on each model share

    def leave(self, context: Any) -> None:
        """No hook of the patch is on a model any more. After the last one, every scheduler is as it was."""
        self.contexts.discard(context)
        if not self.contexts:
            self.runs.detach()

    def call_at(self, position: Position) -> Call:
        reduction, active, late = self.reduction, True, False
        if position.steps is not None and reduction.windowed:
            active = reduction.is_on(position.step, position.steps)
            late = reduction.is_late(position.step, position.steps)
        return Call(active, reduction.phase_index(position.step), late)

    def current_call(self) -> Call:
        """The call that would be made now, as far as it is known without a timestep."""
        return self.call_at(self.runs.now())

    def next_call(self, timestep: Any) -> Call:
        """The call that is about to be made in this thread, with this timestep (None: it must not be read)."""
        position = self.runs.of(timestep)
        if position.steps is None and self.reduction.windowed:
            where = "where the model is called outside of a run that todome can follow"
            remedy = (
                "Apply to the pipeline that runs it, or use apply(..., scheduler=...) and call set_timesteps before "
                "each run, or call patch.at(step, steps) before each step"
            )
            raise self.reduction.window_error(where, remedy)
        return self.call_at(position)

    def show_graphs(self) -> None:
        """Moves what graphs read: no hook runs when a captured graph is replayed."""
        call, driven = self.current_call(), self.runs.is_driven
        for context in list(self.contexts):
            context.inputs.move(call, driven)

    def __getstate__(self) -> dict[str, Any]:
        return {"reduction": self.reduction, "runs": self.runs}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)
