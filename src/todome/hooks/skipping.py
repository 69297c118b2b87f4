"""Leaving a module out: a gate before its call, which may run it, with other arguments, or not at all.

No hook can keep a module from running. A module with a gate gets a class derived from its own, of the same name, whose
`__call__` asks the gate. It is looked up on the class, so nothing that others put on the instance (a replaced
`forward`, the hooks of offloading) takes the gate off, and taking the gate off disturbs none of that.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Protocol

from torch import nn

GATE = "todome_gate"


class Gate(Protocol):
    """What stands before a module."""

    patched: Any

    def call(self, module: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...


class Gated:
    """Base of the classes of modules that have a gate."""

    ungated: type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        run = super().__call__  # pyright: ignore[reportAttributeAccessIssue]
        gate = self.__dict__.get(GATE)
        return run(*args, **kwargs) if gate is None else gate.call(self, run, args, kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        _, _, *state = super().__reduce_ex__(protocol)
        return (new_gated, (self.ungated,), *state)


@cache
def gated(kind: type) -> type:
    """The class of the modules of a kind that have a gate."""
    own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__, "ungated": kind}
    return type(kind.__name__, (Gated, kind), own)


def new_gated(kind: type) -> Any:
    """An empty module of a kind with a gate, for copies and for what is unpickled."""
    return object.__new__(gated(kind))


def put_before(module: nn.Module, gate: Gate) -> None:
    if not isinstance(module, Gated):
        module.__class__ = gated(type(module))
    vars(module)[GATE] = gate


def take_away(module: nn.Module) -> None:
    """The module as it was. A class that others derived from the one with a gate stays, as everything of theirs."""
    vars(module).pop(GATE, None)
    if isinstance(module, Gated) and type(module) is gated(module.ungated):
        module.__class__ = module.ungated


def loads_ahead(model: nn.Module) -> bool:
    """Whether each module loads the weights of the next one (diffusers' offloading by groups with streams).

    Then none may be left out: before diffusers 0.38 the next one that runs would find its weights elsewhere.
    """
    registries = [vars(module).get("_diffusers_hook") for module in model.modules()]
    hooks = [hook for registry in registries for hook in getattr(registry, "hooks", {}).values()]
    return any(getattr(getattr(hook, "group", None), "stream", None) is not None for hook in hooks)


def gates_in(root: nn.Module) -> Iterator[tuple[nn.Module, Gate]]:
    """Every module with a gate in a model, also in a copy of one that was patched."""
    for module in root.modules():
        if GATE in vars(module):
            yield module, vars(module)[GATE]
