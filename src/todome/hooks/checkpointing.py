"""Making the same choice again where gradient checkpointing computes a part of a model a second time.

It does so in the backward pass, maybe after other calls of the model, and always begins with the same memory: with the
same tensor, or with one that was detached from it. So it is the memory that remembers what was chosen for it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, UntypedStorage, nn

Choice = TypeVar("Choice")


def is_recomputing() -> bool:
    """Whether a backward pass runs this."""
    return torch._C._current_graph_task_id() != -1


def chosen_once(x: Tensor, owner: Any, module: nn.Module, choose: Callable[[], Choice]) -> Choice:
    """What the owner chose when its module was called with x; chosen now, unless this is that call computed again."""
    known = choices_of(x) if is_recomputing() else {}
    key = owner, x.storage_offset()
    if key in known:
        return known[key]
    choice = choose()
    # Reentrant checkpointing hides from what is inside of it that there will be gradients, but not that it trains.
    if torch.is_grad_enabled() or module.training:
        choices_of(x)[key] = choice
    return choice


def choices_of(x: Tensor) -> dict[Any, Any]:
    """What the memory of a tensor remembers."""
    try:
        memory: UntypedStorage = x.untyped_storage()
    except NotImplementedError:
        return {}  # the tensors of torch.func have no memory of their own, and are never computed again
    return vars(memory).setdefault("_todome", {})
