"""Which code attaches which lever: a settings class is registered with what finds its places in a model.

    @attaches(Downsample)
    class KeptKeys(LayerHook): ...

A lever of a user's own is a file of settings, one of hooks, and this decorator. One that comes with todome is also
imported in `patch.apply` and named in `__init__`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from torch import nn

from ..errors import invalid_value
from ..levers.lever import Lever


class Places(ABC):
    """Where one lever goes in some models: found and checked before anything is changed.

    Attributes:
        models: Those among the models in which it changes something.
    """

    models: list[nn.Module]

    @classmethod
    def places(cls, lever: Any, models: Sequence[nn.Module]) -> "Places":
        """Where a lever goes in some models. Raises where it cannot be used there, and changes nothing."""
        return cls(lever, models)  # pyright: ignore[reportCallIssue]

    @abstractmethod
    def refusal(self, target: str) -> Exception:
        """The error for a target, called by its class, in which it finds no place."""

    @abstractmethod
    def attach(self, model: nn.Module, patched: Any) -> Any:
        """Adds the hooks to one of the models; what they share with the model as a whole (`root.RootPart`)."""

    @abstractmethod
    def lines(self) -> list[str]:
        """What was done, for people."""


class Handler(Protocol):
    """What is registered for a class of levers."""

    def places(self, lever: Any, models: Sequence[nn.Module]) -> Places:
        """Where a lever goes in some models. Raises where it cannot be used there, and changes nothing."""
        ...


Registered = TypeVar("Registered", bound=Handler)
HANDLERS: dict[type, Any] = {}


def attaches(kind: type) -> Callable[[Registered], Registered]:
    """Registers what attaches the levers of a class, and of those derived from it."""

    def register(handler: Registered) -> Registered:
        HANDLERS[kind] = handler
        return handler

    return register


def handler_of(lever: Lever) -> Any:
    found = next((HANDLERS[cls] for cls in type(lever).__mro__ if cls in HANDLERS), None)
    if found is None:
        known = ", ".join(sorted(kind.__name__ for kind in HANDLERS))
        remedy = "Register what attaches it with todome.hooks.registry.attaches"
        raise invalid_value("lever", lever, f"a lever that is registered: {known}", remedy, TypeError)
    return found
