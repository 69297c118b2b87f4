"""State of the call that is being computed, by thread."""

import threading
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..steps.run import Position
from ..tokens.grid import Grid
from ..tokens.matching import Matching

PHASE = "todome_phase"  # what torch.export calls the phase index of a model; an attribute, in no table of tensors


class TokenCall(NamedTuple):
    """What is the same for all layers in one call of a model."""

    part: int | None  # of the run, which says which setting a layer has; None where all are dense
    phase_index: int


class BlockCall(NamedTuple):
    """What a layer has to know of the call it is part of: enough to make the same choice again."""

    call: TokenCall
    grid: Grid
    tokens: int
    batch: int


class ModelCall:
    """One call of a model, from its root's first hook to its last."""

    def __init__(self, position: Position, latents: Tensor, capturing: bool, is_reduced: bool) -> None:
        self.position, self.capturing = position, capturing
        self.size, self.device = latents.shape[-2:], latents.device
        self.is_reduced = is_reduced  # not while the hooks are being taken off
        self.tokens = TokenCall(None, 0)


class ThreadState(threading.local):
    """State of the call that this thread computes. A copy of it is an empty one."""

    def __init__(self) -> None:
        self.call: ModelCall | None = None  # of the model that is being computed
        self.reuse: Any = None  # the call of a model with a gate (`reuse.ReuseCall`)
        self.training = False  # whether it was called with gradients
        self.recomputed_holder: Any = None  # the reader of a holder that a backward pass computes as a whole
        self.block: BlockCall | None = None  # of the layers that are being computed
        self.matching: Matching | None = None  # of the block that is being computed
        self.merging = False  # whether the part that is being computed was given merged tokens

    @property
    def in_model(self) -> bool:
        return self.call is not None

    @property
    def capturing(self) -> bool:
        """Whether the call goes into a CUDA graph."""
        return self.call is not None and self.call.capturing

    @property
    def is_inference(self) -> bool:
        """Whether a model is being computed without gradients, of which nothing is ever computed again."""
        return self.call is not None and not self.training

    def __reduce__(self) -> Any:
        return ThreadState, ()


def is_real(tensor: Tensor) -> bool:
    """Whether a tensor has values: not on the device "meta", not inside of torch.func, none of a class of its own."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # pyright: ignore[reportAttributeAccessIssue]
    return type(tensor) is Tensor and not tensor.is_meta and not wrapped(tensor)


def is_capturing(device: torch.device) -> bool:
    """Whether what happens on this device now goes into a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
