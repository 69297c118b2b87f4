"""Hooks on a model as a whole: they ask whose run a call belongs to, and tell each lever.

They run outside of the graphs that torch.compile makes of the model, but where it is a part of a larger graph.
"""

import weakref
from typing import Any

import torch
from torch import Tensor, nn

from .attaching import Hook, add_hook, add_pre_hook
from .checkpointing import Memory
from .compiling import is_compiling, is_hook, outside_graphs
from .patched import PatchedModel
from .state import ModelCall, is_capturing

TRACED = (
    "torch.jit.trace would record one phase for ever, and the pictures of ToDo: it cannot be used with a patch. Use "
    "torch.compile or torch.export, or remove the patch first."
)
LATENTS = ("hidden_states", "sample", "x")  # in transformers of diffusers; its UNets; ldm and sgm
TIMESTEPS = ("timestep", "timesteps", "t", "timestep_ratio")
REPLICATED = (
    "torch.nn.DataParallel computes a model in threads that know nothing of the run: it cannot be used with a patch. "
    "Use DistributedDataParallel, or one process for each GPU."
)


class RootPart:
    """What one lever does at each call of a model as a whole: nothing, unless it says otherwise."""

    def adopt(self, root: nn.Module) -> None:
        """The model was called, or is hooked."""

    def before(self, call: ModelCall) -> None:
        """The model is about to be computed."""

    def after(self, succeeded: bool) -> None:
        """It was computed, or raised."""

    def before_in_graph(self, timestep: Any) -> None:
        """It is about to be computed inside of a larger graph."""


class RootHook(Hook):
    """Begins and ends the calls of one model."""

    def __init__(self, root: nn.Module, parts: list[RootPart], patched: PatchedModel) -> None:
        super().__init__(patched)
        self.parts = parts
        self.memory = Memory()
        self.adopt(root)
        add_pre_hook(root, self.before)
        add_hook(root, self.after, always=True)

    def adopt(self, root: nn.Module) -> None:
        """Makes the root known where hooks are found from its parts, and the phase where torch.export looks for it."""
        if self.patched.root is None or self.patched.root() is not root:
            self.patched.root = weakref.ref(root)
        for part in self.parts:
            part.adopt(root)

    @is_hook
    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_compiling():
            for part in self.parts:
                part.before_in_graph(find_timestep(args, kwargs))
        else:
            self.begin_call(module, args, kwargs)

    @is_hook
    def after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not is_compiling():
            self.end_call(output is not None)

    @outside_graphs
    def begin_call(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        refuse_copies_of_the_call(module)
        latents = find_latents(args, kwargs)
        if latents is None:
            return
        state, runs = self.patched.shared.state, self.patched.shared.runs
        capturing = is_capturing(latents.device)
        timestep = None if capturing else find_timestep(args, kwargs)
        state.training = torch.is_grad_enabled()
        # Without the run: what the memory has outlives it, and the same step of another run is the same choice.
        position = self.memory.choose(latents, lambda: runs.of(timestep)._replace(run=None), state.training)
        state.call = ModelCall(position, latents, capturing, self.patched.begin_call())
        state.recomputed_holder = state.block = None
        self.adopt(module)
        for part in self.parts:
            part.before(state.call)

    @outside_graphs
    def end_call(self, succeeded: bool) -> None:
        self.patched.shared.state.call = None
        for part in self.parts:
            part.after(succeeded)
        self.patched.end_call()


def refuse_copies_of_the_call(module: nn.Module) -> None:
    if torch._C._get_tracing_state() is not None:
        raise RuntimeError(TRACED)
    if getattr(module, "_is_replica", False):
        raise RuntimeError(REPLICATED)


def find_timestep(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The timestep that a model is called with: by name, or of what stands behind the latents the first number."""
    named = [kwargs[name] for name in TIMESTEPS if name in kwargs]
    numbers = [a for a in args[1:] if isinstance(a, (int, float)) or (isinstance(a, Tensor) and a.ndim < 2)]
    return next(iter([*named, *numbers, *args[1:]]), None)


def find_latents(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """What a model denoises: its first argument everywhere; of others the one with rows and columns."""
    named = [*args[:1], *(kwargs[name] for name in LATENTS if name in kwargs)]
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
    several = [t for t in tensors if t.ndim > 3]
    return next((a for a in (*named, *several, *tensors) if isinstance(a, Tensor)), None)
