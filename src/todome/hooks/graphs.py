"""What compiled and captured graphs read: nothing that runs by thread, nothing that is decided in Python.

torch.compile cannot look into `threading.local`, and a graph must find the phase where it found it before.
Tables are had at hand from the first graph on; until then a call prepares nothing here but the phase, on a GPU.
"""

import math
import operator
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..tokens.grid import Grid
from ..tokens.matching import Matching
from ..tokens.tables import Table
from .compiling import assume_constant_result, real_tensors
from .state import TokenCall, is_capturing

PATIENCE = 0.5  # seconds until it is looked again whether the holder of a lock still lives
STEPS = 4096  # of a run that only a graph follows; after these the phases begin again


class GraphInputs:
    """What graphs of one model read: the part of the run, and the phase as a tensor.

    `part` is a Python number, hence one compiled graph for each part of the run. The phase is a tensor of one element
    on the model's device that is overwritten in place, so that replayed graphs see it move. Where a backward pass may
    still read it, a new tensor is allocated instead.
    """

    def __init__(self) -> None:
        self.part: int | None = 0
        self.phase_index = 0
        self.phase = self.new_phase(torch.device("cpu"))
        self.saved_for_backward = False
        self.captured = False  # whether a captured graph reads the tensor, which knows no other
        self.driven = False  # whether somebody drives the run, so that a graph need not look at timesteps
        self.traced = False  # whether a compiled graph reads all this
        self.calls = CallLock()
        self.falling: FallingInGraph | None = None
        self.matching: Matching | None = None
        self.merging = False

    def show(self, call: TokenCall) -> None:
        moved = call.phase_index != self.phase_index
        self.part, self.phase_index = call
        if moved and self.saved_for_backward:
            self.phase, self.saved_for_backward = self.new_phase(self.phase.device), False
        elif moved:
            self.phase.fill_(self.phase_index)

    def move(self, call: TokenCall, driven: bool) -> None:
        """Shows a step that is about to be made, unless another thread computes a call with these inputs."""
        self.calls.release()  # a step is made after the call, also where that was interrupted
        if self.calls.acquire(wait=False):
            self.driven = driven
            self.show(call)
            self.calls.release()

    def begin_call(self, call: TokenCall, device: torch.device) -> None:
        """Shows a call of the model on a device. Calls with compiled graphs are made one after the other."""
        if self.traced:
            self.calls.acquire()
        elif device.type == "cpu":
            return  # nothing here is captured
        if self.phase.device != device:
            self.phase = self.new_phase(device)
        self.show(call)
        self.captured |= is_capturing(device)
        self.saved_for_backward = not self.captured and (self.saved_for_backward or torch.is_grad_enabled())

    def new_phase(self, device: torch.device) -> Tensor:
        """A tensor that may be overwritten outside of inference mode."""
        with torch.inference_mode(False):
            return torch.full((1,), self.phase_index, dtype=torch.long, device=device)

    def __getstate__(self) -> dict[str, Any]:
        changed = {"matching": None, "merging": False, "captured": False, "traced": False, "falling": None}
        return self.__dict__ | changed


class FallingInGraph:
    """Steps told from falling timesteps (`steps.run.FallingTimestep`) inside of a graph, where nobody drives the run.

    Nothing is read: step and timestep are tensors of one element that the graph overwrites.
    """

    def __init__(self, phase_of: Callable[[int], int], device: torch.device) -> None:
        with torch.inference_mode(False):
            self.phases = torch.tensor([phase_of(step) for step in range(STEPS)], device=device)
            self.step = torch.zeros(1, dtype=torch.long, device=device)
            self.timestep = torch.full((1,), math.nan, device=device)

    def advance(self, timestep: Tensor | float) -> Tensor:
        """The phase of the step that a call with this timestep belongs to, (1,)."""
        if isinstance(timestep, Tensor):
            now = timestep.reshape(-1)[:1].to(self.timestep)
        else:
            now = torch.full_like(self.timestep, float(timestep))
        kept = torch.where(now == self.timestep, self.step, torch.zeros_like(self.step))
        step = torch.where(now < self.timestep, self.step + 1, kept)
        self.step.copy_(step)
        self.timestep.copy_(now)
        return self.phases.index_select(0, step % STEPS)


class GraphTables:
    """Tables that graphs read in one layer, in each part of a run, exchanged outside of graphs when the size changes.

    No graph knows the number of its layer, so blocks that are alike share one.
    """

    def __init__(self) -> None:
        self.at_hand: list[Table | None] = []  # for the grid that the layer's holder provides
        self.of_grid: dict[Grid, list[Table | None]] = {}  # for graphs that cannot use them

    def find(self, grid: "GraphGrid", tokens: int, part: int) -> Table | None:
        """The table for so many tokens; None where they are not those of the grid."""
        own, known = grid.own_grid, grid.grid
        if own is not None:
            return self.of_grid[own][part] if tokens == math.prod(own) else None
        return self.at_hand[part] if known is not None and tokens == known.numel() else None

    def __reduce__(self) -> Any:
        return GraphTables, ()


class GraphGrid:
    """The grid that the tables of a holder's layers are at hand for: one compiled graph serves all sizes.

    Where the whole model is inside of a larger graph, nothing runs outside, and there is one graph for each grid.
    """

    def __init__(self) -> None:
        self.grid: Tensor | None = None  # as the size of a tensor: maybe a symbol
        self.provided: tuple[Any, ...] = ()  # the same, and the device
        self.own_grid: Grid | None = None  # of a graph that cannot use it

    def provide(self, grid: Grid, device: torch.device) -> None:
        """The tables at hand are for this grid from now on."""
        self.provided, self.grid = (grid, device), torch.empty((), device=device).expand(grid)

    def forget(self) -> None:
        self.provided, self.grid = (), None

    def fits(self, grid: Grid) -> bool:
        """Whether the tables at hand are for this grid, whose sides may be symbols."""
        known = self.grid
        return known is not None and grid[0] == known.shape[0] and grid[1] == known.shape[1]

    def __reduce__(self) -> Any:
        return GraphGrid, ()


class DeepSlots:
    """What graphs read and write of deep features: how many stages are computed, and tensors that stay in place."""

    def __init__(self) -> None:
        self.cut: int | None = None  # stages that are computed; None: all
        self.recorded: tuple[int, ...] = ()  # numbers of stages whose joint is written
        self.deep: Tensor | None = None  # what goes up into the computed stages
        self.places: dict[tuple[Any, ...], Tensor] = {}  # of predictions, by shape
        self.written: dict[int, Tensor] = {}
        self.traced = False
        self.calls = CallLock()

    def begin(self, cut: int | None, recorded: tuple[int, ...], deep: Tensor | None) -> None:
        """Shows a call. Calls with compiled graphs are made one after the other."""
        if self.traced:
            self.calls.acquire()
        self.cut, self.recorded, self.deep = cut, recorded, deep
        if self.traced and deep is not None:
            self.deep = self.places.setdefault((cut, deep.shape, deep.dtype, deep.device), torch.empty_like(deep))
            self.deep.copy_(deep)

    def end(self) -> None:
        self.deep = None
        self.calls.release()

    def write(self, joint: int, features: Tensor) -> None:
        """Writes the features of a joint, in a graph."""
        slot = self.slot(joint, whole(tuple(features.shape)), features.dtype, features.device)
        self.written[joint].copy_(features) if slot else None

    @assume_constant_result
    def slot(self, joint: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> bool:
        """Runs while a graph is traced, and never again."""
        self.traced = True
        with real_tensors(), torch.inference_mode(False):
            if joint not in self.written or self.written[joint].shape != shape:
                self.written[joint] = torch.empty(shape, dtype=dtype, device=device)
        return True

    def found(self) -> dict[int, Tensor]:
        """What the last full call has written."""
        return {joint: self.written[joint].clone() for joint in self.recorded if joint in self.written}

    def __reduce__(self) -> Any:
        return DeepSlots, ()


def whole(grid: tuple[Any, ...]) -> Grid:
    """A grid as numbers: a size may be a symbol, and without tables at hand one graph for each grid is wanted."""
    return tuple(operator.index(length) for length in grid)


class CallLock:
    """Lock that one thread holds for a call of a model. Its holder may ask again, others can be told to wait.

    A thread that ended in the middle of a call (SystemExit, an exception from outside) has not released it: torch runs
    no hook then. Such a thread holds nothing any more.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.holder: threading.Thread | None = None

    def acquire(self, wait: bool = True) -> bool:
        mine = threading.current_thread()
        with self.changed:
            while self.holder not in (None, mine) and self.holder.is_alive():
                if not wait:
                    return False
                self.changed.wait(PATIENCE)
            self.holder = mine
        return True

    def release(self) -> None:
        with self.changed:
            if self.holder is threading.current_thread():
                self.holder = None
                self.changed.notify()

    def __reduce__(self) -> Any:
        return CallLock, ()
