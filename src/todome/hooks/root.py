"""Hooks on a model as a whole: they ask the clock, and say once where nothing was reduced.

They run outside of the graphs that torch.compile makes of the model. Only where the model is a part of a larger graph
do they run inside of it: then the scheduler or `patch.at` must say where the run is.
"""

import warnings
import weakref
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import invalid_value
from ..reductions import AUTO_KEYS, format_grid
from ..steps.clock import Call
from .checkpointing import Memory
from .compiling import is_compiling, outside_graphs, stays_eager
from .grids import GridReader
from .modules import Context, Hook, add_hook, add_pre_hook
from .state import PHASE, is_capturing

TRACED = (
    "torch.jit.trace would record one phase for ever, and the pictures of ToDo: it cannot be used with a patch. Use "
    "torch.compile or torch.export, or remove the patch first."
)
REPLICATED = (
    "torch.nn.DataParallel computes a model in threads that know nothing of the run: it cannot be used with a patch. "
    "Use DistributedDataParallel, or one process for each GPU."
)


class RootHook(Hook):
    """Begins and ends the calls of one model."""

    def __init__(self, root: nn.Module, readers: list[GridReader], context: Context) -> None:
        super().__init__(context)
        self.readers, self.layers = readers, [layer for reader in readers for layer in reader.layers]
        self.memory = Memory()
        self.warns = getattr(self.clock.reduction, "factor", None) == "auto"
        self.expected: tuple[Any, ...] = ()
        self.adopt(root)
        add_pre_hook(root, self.before)
        add_hook(root, self.after, always=True)

    def adopt(self, root: nn.Module) -> None:
        """Makes the root known where hooks are found from its parts, and the phase where torch.export looks for it."""
        if self.context.root is None or self.context.root() is not root:
            self.context.root = weakref.ref(root)
        vars(root)[PHASE] = self.context.inputs.phase

    @stays_eager
    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A graph cannot tell steps apart: it ends here, unless a scheduler or `patch.at` says where the run is."""
        if not is_compiling() or not self.context.inputs.driven:
            self.begin_call(module, args, kwargs)

    @stays_eager
    def after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not is_compiling():
            self.end_call(output is not None)

    @outside_graphs
    def begin_call(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        refuse_copies_of_the_call(module)
        latents = latents_among((*args, *kwargs.values()))
        if latents is None:
            return
        capturing, state = is_capturing(latents.device), self.context.state
        timestep = None if capturing else find_timestep(args, kwargs)
        state.training = torch.is_grad_enabled()
        state.call = self.memory.choose(latents, lambda: self.next_call(timestep, capturing), state.training)
        if not self.context.begin_call():
            state.call = state.call._replace(active=False)
        state.recomputed_holder, state.capturing = None, capturing
        self.context.inputs.begin_call(state.call, latents.device)
        self.adopt(module)
        self.expect(latents)
        for layer in self.layers:
            layer.refresh()

    def next_call(self, timestep: Any, capturing: bool) -> Call:
        reduction = self.clock.reduction
        if capturing and reduction.windowed:
            window, remedy = (reduction.start, reduction.stop), "Leave start and stop out, or do not capture the model"
            allowed = "(0.0, 1.0) in a CUDA graph, which cannot change with the step"
            raise invalid_value("(start, stop)", window, allowed, remedy, RuntimeError)
        return self.clock.next_call(timestep)

    def expect(self, latents: Tensor) -> None:
        size = (*latents.shape[-2:], latents.device)
        if size != self.expected:
            self.expected = size
            for reader in self.readers:
                reader.expect(latents)

    @outside_graphs
    def end_call(self, succeeded: bool) -> None:
        self.context.state.call = None
        self.context.inputs.calls.release()
        self.context.end_call()
        if succeeded:
            self.warn_if_dense()

    def warn_if_dense(self) -> None:
        """Says once where "auto" found nothing to do; a silent no-op is what users of the peers suffer from."""
        tables = self.context.tables
        if self.warns and tables.grids and not tables.reduces and self.context.says_now("dense"):
            finest = max(grid for grid, _ in list(tables.grids))
            warnings.warn(
                f'factor="auto" leaves this model dense: its finest grid has {format_grid(finest)} tokens, and "auto" '
                f"reduces grids of more than {AUTO_KEYS}. Use todome.Downsample(factor=2) to reduce it all the same.",
                stacklevel=2,
            )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"expected": ()}


def refuse_copies_of_the_call(module: nn.Module) -> None:
    if torch._C._get_tracing_state() is not None:
        raise RuntimeError(TRACED)
    if getattr(module, "_is_replica", False):
        raise RuntimeError(REPLICATED)


def find_timestep(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The timestep that a model is called with: its second argument everywhere."""
    named = [kwargs[name] for name in ("timestep", "timesteps") if name in kwargs]
    return args[1] if len(args) > 1 else next(iter(named), None)


def latents_among(arguments: tuple[Any, ...]) -> Tensor | None:
    """What a model denoises: of its arguments the one with rows and columns."""
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    return next((t for t in tensors if t.ndim > 3), tensors[0] if tensors else None)
