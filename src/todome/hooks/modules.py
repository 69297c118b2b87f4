"""Adding hooks to torch modules and removing them without a trace: the one place that touches the hook tables."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..steps.clock import Call, Clock
from ..tokens.tables import TableCache
from .state import PHASE, GraphInputs, ThreadState

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(eq=False)
class Context:
    """What the hooks of one patch on one model share. All but `inputs` is shared by the models of the patch as well."""

    clock: Clock
    tables: TableCache
    state: ThreadState
    said: set[str]  # which warnings were given
    inputs: GraphInputs
    later: int = 0  # how much higher a layer's number is among the settings of later, where there are any

    def current_call(self) -> Call:
        return self.state.call or self.clock.current_call()

    def phase_for(self, call: Call, device: torch.device) -> Tensor | int:
        """The phase index for a layer on this device: a number costs no kernel, but a graph would keep it for ever."""
        return self.inputs.phase.to(device) if self.state.capturing else call.phase_index

    def says_now(self, warning: str) -> bool:
        """Whether a warning is to be given, which is once."""
        known = warning in self.said
        self.said.add(warning)
        return not known


class Hook:
    """Base of the objects whose bound methods are registered as hooks: bound methods pickle and copy with the model."""

    def __init__(self, context: Context) -> None:
        self.context = context

    @property
    def clock(self) -> Clock:
        return self.context.clock


class HookEntry(NamedTuple):
    """One hook of todome's: whose it is, and where it is entered."""

    owner: Hook
    tables: tuple[dict[int, Any], ...]
    key: int


def unwrapped(module: Any) -> Any:
    """The model inside what torch.compile and DistributedDataParallel put around it."""
    while hasattr(module, "_orig_mod") or type(module).__name__ == "DistributedDataParallel":
        module = module._orig_mod if hasattr(module, "_orig_mod") else module.module
    return module


def add_pre_hook(module: nn.Module, method: Callable[..., Arguments | None]) -> None:
    """Has the method called with (module, args, kwargs) before the module is."""
    module.register_forward_pre_hook(method, with_kwargs=True)


def add_argument_hook(module: nn.Module, method: Callable[..., Any]) -> None:
    """The same with (module, args) alone, which costs less, and before all other hooks."""
    module.register_forward_pre_hook(method, prepend=True)


def add_hook(module: nn.Module, method: Callable[..., Any], always: bool = False) -> None:
    """Has the method called with (module, args, output) after the module is; `always`: also where it raised."""
    module.register_forward_hook(method, always_call=always)


def our_hooks(root: nn.Module) -> Iterator[HookEntry]:
    """Every hook of todome's in a model, also in a copy of one that was patched."""
    for module in root.modules():
        before = (module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs)
        after = (module._forward_hooks, module._forward_hooks_always_called)
        for tables in (before, after):
            for key, method in tables[0].items():
                owner = getattr(method, "__self__", None)
                if isinstance(owner, Hook):
                    yield HookEntry(owner, tables, key)


def clocks_on(root: nn.Module) -> list[Clock]:
    """The clocks of the patches on a model: one, or none."""
    return list({id(hook.owner.clock): hook.owner.clock for hook in our_hooks(root)}.values())


def remove_hooks(root: nn.Module, clock: Clock) -> None:
    """Removes the hooks of one patch from a model, and the buffer with them."""
    for hook in list(our_hooks(root)):
        if hook.owner.clock is clock:
            for table in hook.tables:
                table.pop(hook.key, None)
            hook.owner.context.inputs.root._buffers.pop(PHASE, None)
            hook.owner.context.inputs.root._non_persistent_buffers_set.discard(PHASE)


def remove_hooks_on(module: nn.Module, owner: Hook) -> None:
    """Removes the pre-hooks of one owner from one module."""
    for key, method in list(module._forward_pre_hooks.items()):
        if getattr(method, "__self__", None) is owner:
            del module._forward_pre_hooks[key]


def first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The tokens or latents a module is called with, by position or by name."""
    return args[0] if args else kwargs[first_name(kwargs)]


def with_first(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    return ((value, *args[1:]), kwargs) if args else (args, {**kwargs, first_name(kwargs): value})


def first_name(kwargs: dict[str, Any]) -> str:
    return "hidden_states" if "hidden_states" in kwargs else "x"  # diffusers; ldm and sgm
