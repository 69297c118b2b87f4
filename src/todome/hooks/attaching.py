"""Adding hooks to torch modules and removing them without a trace: the one place that touches the hook tables."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from torch import nn

from .compiling import is_compiling
from .patched import PatchedModel
from .skipping import Gate, gates_in, put_before, take_away
from .state import PHASE

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Hook:
    """Base of the objects whose bound methods are registered as hooks: bound methods pickle and copy with the model."""

    def __init__(self, patched: PatchedModel) -> None:
        self.patched = patched

    @property
    def may_act(self) -> bool:
        """Whether the patch is on, and not being taken off while this call is made."""
        call = None if is_compiling() else self.patched.shared.state.call
        return call is None or call.is_reduced


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

    patched: PatchedModel
    entries: list[tuple[dict[int, Any], int, Any]]
    gates: list[tuple[nn.Module, Gate]]

    def attach_again(self) -> None:
        for module, gate in self.gates:
            put_before(module, gate)
        for table, key, value in self.entries:
            table[key] = value
        self.patched.attach()


def patches_on(target: nn.Module) -> list[PatchedModel]:
    """The patch on a model; several where it has parts with patches of their own."""
    owners = [*(hook.owner for hook in our_hooks(target)), *(gate for _, gate in gates_in(target))]
    return list({id(owner.patched): owner.patched for owner in owners}.values())


def close_all(patches: Iterable[PatchedModel]) -> None:
    """Has patches ready to be taken off: all of them, or none where another thread computes a call for too long."""
    closing = list(patches)
    if not all(patched.close() for patched in closing):
        for patched in closing:
            patched.is_closing = False
        raise RuntimeError("The patch cannot be changed while another thread computes a call: wait for its end.")


def detach(patched: PatchedModel, target: nn.Module) -> Detached:
    """Takes off every hook of a patch on one model, which may reach beyond the target that it was found in."""
    root = None if patched.root is None else patched.root()
    entries, gates = [], []
    for part in (target, *filter(None, [root])):
        for hook in list(our_hooks(part)):
            if hook.owner.patched is patched:
                entries += [(table, hook.key, table.pop(hook.key)) for table in hook.tables if hook.key in table]
        for module, gate in list(gates_in(part)):
            if gate.patched is patched:
                take_away(module)
                gates.append((module, gate))
        vars(part).pop(PHASE, None)
    patched.shared.leave(patched)
    return Detached(patched, entries, gates)


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
