"""Where: one file for each kind of model, which says where its layers, grids and masks are, and nothing else.

A new kind of model is a new file with a function like `unet.find_layers`, and an entry in `FINDERS`.
"""

from torch import nn

from ..errors import NothingToReduce
from . import transformers, unet
from .layer import Layer

FINDERS = (unet.find_layers,)
SUPPORTED = (unet.SUPPORTED,)

__all__ = ["Layer", "find_layers", "nothing_to_reduce"]


def find_layers(model: nn.Module) -> list[Layer]:
    """Every layer of a model whose tokens can be reduced."""
    return [layer for find in FINDERS for layer in find(model)]


def nothing_to_reduce(models: list[nn.Module]) -> NothingToReduce:
    """The error for models without a layer that can be reduced: what was looked for, or why it is refused."""
    names = " and ".join(type(model).__name__ for model in models)
    allowed = f"Allowed: {'; '.join(SUPPORTED)}."
    for model in models:
        if transformers.is_transformer(model):
            return NothingToReduce(f"target={names} cannot be used: {transformers.REASON} {allowed} Leave it dense.")
    return NothingToReduce(
        f"target={names} has no BasicTransformerBlock with self-attention over image tokens. {allowed} Leave it dense."
    )
