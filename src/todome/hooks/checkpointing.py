"""Making the same choice again where gradient checkpointing computes a part of a model a second time.

That happens in the backward pass, maybe after other calls of the model. The part that is computed again gets the
storage of its original input, so the choice is stored as an attribute of that storage. Where saved tensors are copied
(`save_on_cpu`), or torch is 2.1, the storage is another one: then the only choice since the last backward pass is
taken, and where there were several, the call is refused.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .compiling import outside_graphs

Choice = TypeVar("Choice")


class Stored(NamedTuple):
    """A choice for a tensor; several that differ cannot be told apart when they are computed again."""

    version: int  # of the tensor: what is overwritten in place is another input
    choice: Any
    with_gradients: bool
    ambiguous: bool = False


def is_recomputing() -> bool:
    """Whether a backward pass runs this."""
    return torch._C._current_graph_task_id() != -1


class Memory:
    """Choices of one hook, by the tensor that its module was called with."""

    def __init__(self) -> None:
        self.recent: list[Any] = []  # different choices in training since something was computed again; two at most
        self.recomputed = False

    @outside_graphs
    def choose(self, x: Tensor, choose: Callable[[], Choice], training: bool, fresh: bool = False) -> Choice:
        """What was chosen for x; chosen now, unless this is an earlier call that is computed again.

        Args:
            x: What the module is called with.
            choose: Makes the choice.
            training: Whether the model was called with gradients; reentrant checkpointing hides them from its parts.
            fresh: Whether the call is known to be none that is computed again.
        """
        if x.is_inference():
            return choose()  # such tensors never have gradients
        if is_recomputing() and not fresh:
            self.recomputed = True
            return self.recall(x, choose)
        choice = choose()
        self.store(x, choice)
        if training:
            self.note_recent(choice)
        return choice

    def store(self, x: Tensor, choice: Any) -> None:
        gradients, stored = torch.is_grad_enabled(), self.stored_for(x)
        known = stored.get(x.storage_offset())
        # Reentrant checkpointing runs without gradients, so choices are stored without them too, but count less.
        if known is None or known.version != x._version or (gradients and not known.with_gradients):
            stored[x.storage_offset()] = Stored(x._version, choice, gradients)
        elif known.choice != choice and gradients == known.with_gradients:
            stored[x.storage_offset()] = Stored(x._version, choice, gradients, ambiguous=True)

    def note_recent(self, choice: Any) -> None:
        if self.recomputed:
            self.recent, self.recomputed = [], False
        if choice not in self.recent and len(self.recent) < 2:
            self.recent.append(choice)

    def recall(self, x: Tensor, choose: Callable[[], Choice]) -> Choice:
        known = self.stored_for(x).get(x.storage_offset())
        if known is not None and not known.ambiguous:
            return known.choice
        if known is None and len(self.recent) == 1:
            return self.recent[0]
        if torch.is_grad_enabled():
            raise RuntimeError(
                "Gradient checkpointing computes a call of the model again that cannot be told from another one: their "
                "inputs share one tensor, or were copied (save_on_cpu, torch 2.1), and the step moved in between. Run "
                "the backward pass of each call before the next step, or remove the patch while training."
            )
        return choose()  # a new call that somebody makes in a backward pass: what is computed again has gradients

    def stored_for(self, x: Tensor) -> dict[Any, Stored]:
        """The choices on the storage of a tensor, by offset. They keep no hook alive: users' latents may live on."""
        try:
            storage = vars(x.untyped_storage())
        except NotImplementedError:
            return {}  # the tensors of torch.func have no storage of their own, and are never computed again
        return storage.setdefault("_todome", WeakKeyDictionary()).setdefault(self, {})

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()
