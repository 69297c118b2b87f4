"""Where: one file for each kind of model, which says where its layers, grids and masks are, and nothing else.

A new kind of model is a new file with a function like `unet.find_layers`, and an entry in `FINDERS`.
"""

from typing import Any

from torch import nn

from ..errors import NothingToReduce
from . import transformers, unet
from .layer import Layer

FINDERS = (unet.find_layers,)
SUPPORTED = (unet.SUPPORTED,)

__all__ = ["Layer", "find_layers", "nothing_to_reduce"]


def find_layers(*models: nn.Module) -> list[Layer]:
    """Every layer of some models whose tokens can be reduced."""
    return [layer for find in FINDERS for layer in find(*models)]


def nothing_to_reduce(target: Any, models: list[nn.Module]) -> NothingToReduce:
    """The error for a target without a layer that can be reduced: what was looked for, or why it is refused."""
    name, allowed = type(target).__name__, f"Allowed: {'; '.join(SUPPORTED)}."
    if any(map(transformers.is_transformer, models)):
        return NothingToReduce(f"target={name} cannot be used: {transformers.REASON} {allowed} Leave it dense.")
    lacking = "has no BasicTransformerBlock with self-attention over image tokens"
    return NothingToReduce(f"target={name} {lacking}. {allowed} Leave it dense.")
