"""Where: one file for each kind of model, which says where its layers, grids and masks are, and nothing else.

A new kind of model is a function like `unet.find_layers`, registered with `describes`, here or in a user's own code.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from torch import nn

from ..errors import NothingToReduce
from . import transformers, unet
from .layer import Layer, numbered

Find: TypeAlias = Callable[[nn.Module], Iterable[Layer]]
FINDERS: dict[str, Find] = {}

__all__ = ["Layer", "describes", "find_layers", "nothing_to_reduce"]


def describes(models: str) -> Callable[[Find], Find]:
    """Registers a function that finds the layers of a kind of model, named for people; none in any other model."""

    def register(find: Find) -> Find:
        FINDERS[models] = find
        return find

    return register


describes(unet.SUPPORTED)(unet.find_layers)


def find_layers(*models: nn.Module) -> list[Layer]:
    """Every layer of some models whose tokens can be reduced, each level beginning with 1."""
    return numbered([layer for model in models for find in FINDERS.values() for layer in find(model)])


def nothing_to_reduce(name: str, models: Sequence[nn.Module]) -> NothingToReduce:
    """The error for models without a layer that can be reduced: what was looked for, or why they are refused."""
    allowed = f"Allowed: {'; '.join(FINDERS)}."
    if any(map(transformers.is_transformer, models)):
        return NothingToReduce(f"target={name} cannot be used: {transformers.REASON} {allowed} Leave it dense.")
    lacking = "has no BasicTransformerBlock with self-attention over image tokens"
    return NothingToReduce(f"target={name} {lacking}. {allowed} Leave it dense.")
