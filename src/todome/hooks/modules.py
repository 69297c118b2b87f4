"""Adding hooks to torch modules and removing them without a trace: the one place that touches the hook tables."""

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..steps.clock import Call, Clock
from ..tokens.tables import TableCache
from .state import PHASE, GraphInputs, ThreadState

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
PATIENCE = 60.0  # seconds for calls that other threads make to end, before a patch is taken off


class Context:
    """What the hooks of one patch on one model share, from `apply` to `remove`.

    Args:
        clock: Shared by the models of the patch, as are the tables and the state of calls.
        tables: Which rows are kept, by layer and grid.
        state: Of the calls that are being made, by thread.
        said: Which warnings were given.
    """

    def __init__(self, clock: Clock, tables: TableCache, state: ThreadState, said: set[str]) -> None:
        self.clock, self.tables, self.state, self.said = clock, tables, state, said
        self.inputs = GraphInputs()
        self.join()

    def join(self) -> None:
        """Makes the clock know of it: of a new one, or of a copy."""
        self.root: weakref.ref[nn.Module] | None = None  # the model, as far as it was called or hooked
        self.calling: set[threading.Thread] = set()
        self.ended = threading.Condition()
        self.is_closing = False
        self.clock.contexts.add(self)
        self.clock.runs.attached = True

    def begin_call(self) -> bool:
        """Whether the hooks may act in a call that this thread makes; not while they are being taken off."""
        with self.ended:
            self.calling.add(threading.current_thread())
            return not self.is_closing

    def end_call(self) -> None:
        with self.ended:
            self.calling.discard(threading.current_thread())
            self.ended.notify_all()

    def close(self) -> bool:
        """Waits until no other thread is in the middle of a call; new calls are dense from now on."""
        self.is_closing = True
        with self.ended:
            return self.ended.wait_for(lambda: not self.others_calling(), PATIENCE)

    def others_calling(self) -> bool:
        mine = threading.current_thread()
        return any(thread is not mine and thread.is_alive() for thread in self.calling)

    def __getstate__(self) -> dict[str, Any]:
        shared = ("clock", "tables", "state", "said", "inputs")
        return {name: getattr(self, name) for name in shared}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.join()

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


class Detached(NamedTuple):
    """Hooks that were taken off, to be put back."""

    context: Context
    entries: list[tuple[dict[int, Any], int, Any]]

    def attach_again(self) -> None:
        for table, key, value in self.entries:
            table[key] = value
        self.context.is_closing = False
        self.context.clock.contexts.add(self.context)
        self.context.clock.runs.attached = True


def contexts_on(target: nn.Module) -> list[Context]:
    """What the hooks in a model share: of one patch, of several where it has parts with patches of their own."""
    return list({id(hook.owner.context): hook.owner.context for hook in our_hooks(target)}.values())


def close_all(contexts: Iterable[Context]) -> None:
    """Has patches ready to be taken off: all of them, or none where another thread computes a call for too long."""
    closing = list(contexts)
    if not all(context.close() for context in closing):
        for context in closing:
            context.is_closing = False
        raise RuntimeError("The patch cannot be changed while another thread computes a call: wait for its end.")


def detach(context: Context, target: nn.Module) -> Detached:
    """Takes off every hook of a patch on one model, which may reach beyond the target that it was found in."""
    root = None if context.root is None else context.root()
    entries = []
    for part in (target, *filter(None, [root])):
        for hook in list(our_hooks(part)):
            if hook.owner.context is context:
                entries += [(table, hook.key, table.pop(hook.key)) for table in hook.tables if hook.key in table]
        vars(part).pop(PHASE, None)
    context.clock.leave(context)
    return Detached(context, entries)


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
