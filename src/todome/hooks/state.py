"""State of the call that is being computed: by thread in eager code, on plain attributes in graphs.

torch.compile cannot look into `threading.local`, and a graph must find the phase where it found it before.
"""

import threading
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..steps.clock import Call
from ..tokens.grid import Grid
from ..tokens.matching import Matching

PHASE = "todome_phase"  # what torch.export calls the phase index of a model; an attribute, in no table of tensors

PATIENCE = 0.5  # seconds until it is looked again whether the holder of a lock still lives


class BlockCall(NamedTuple):
    """What a layer has to know of the call it is part of: enough to make the same choice again."""

    call: Call
    grid: Grid
    tokens: int
    batch: int


class ThreadState(threading.local):
    """State of the call that this thread computes. A copy of it is an empty one."""

    def __init__(self) -> None:
        self.call: Call | None = None  # of the model that is being computed
        self.training = False  # whether it was called with gradients
        self.capturing = False  # whether into a CUDA graph
        self.recomputed_holder: Any = None  # the reader of a holder that a backward pass computes as a whole
        self.block: BlockCall | None = None  # of the layers that are being computed
        self.matching: Matching | None = None  # of the block that is being computed
        self.merging = False  # whether the part that is being computed was given merged tokens

    @property
    def in_model(self) -> bool:
        return self.call is not None

    @property
    def is_inference(self) -> bool:
        """Whether a model is being computed without gradients, of which nothing is ever computed again."""
        return self.in_model and not self.training

    def __reduce__(self) -> Any:
        return ThreadState, ()


class GraphInputs:
    """What graphs of one model read: whether the reduction is on, and the phase as a tensor.

    `active` and `late` are Python bools, hence two compiled graphs, or three of a plan whose factors fall. The phase is
    a tensor of one element on the model's device that is overwritten in place, so that replayed graphs see it move.
    Where a backward pass may still read it, a new tensor is allocated instead.
    """

    def __init__(self) -> None:
        self.active, self.phase_index, self.late = True, 0, False
        self.phase = self.new_phase(torch.device("cpu"))
        self.saved_for_backward = False
        self.captured = False  # whether a captured graph reads the tensor, which knows no other
        self.driven = False  # whether somebody drives the run, so that a graph need not look at timesteps
        self.traced = False  # whether a compiled graph reads all this
        self.calls = CallLock()
        self.matching: Matching | None = None
        self.merging = False

    def show(self, call: Call) -> None:
        moved = call.phase_index != self.phase_index
        self.active, self.phase_index, self.late = call
        if moved and self.saved_for_backward:
            self.phase, self.saved_for_backward = self.new_phase(self.phase.device), False
        elif moved:
            self.phase.fill_(self.phase_index)

    def move(self, call: Call, driven: bool) -> None:
        """Shows a step that is about to be made, unless another thread computes a call with these inputs."""
        self.calls.release()  # a step is made after the call, also where that was interrupted
        if self.calls.acquire(wait=False):
            self.driven = driven
            self.show(call)
            self.calls.release()

    def begin_call(self, call: Call, device: torch.device) -> None:
        """Shows a call of the model on a device. Calls with compiled graphs are made one after the other."""
        if self.traced:
            self.calls.acquire()
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
        return self.__dict__ | {"matching": None, "merging": False, "captured": False, "traced": False}


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


def is_capturing(device: torch.device) -> bool:
    """Whether what happens on this device now goes into a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
