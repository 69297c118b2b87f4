"""What a host says of one layer of its model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..tokens.grid import Grid


@dataclass(frozen=True, eq=False)
class Layer:
    """One block with self-attention over image tokens, and where its parts are.

    Attributes:
        root: The module in which it was looked for.
        net: The network it is a part of: the root, or one of several in it.
        block: The module that is called with the tokens, (batch, tokens, channels).
        holder: The module around it that sees the grid.
        grid_of: The grid of the tokens, from what the holder is called with.
        level: 1 = the finest resolution at which the model has self-attention.
        name: The same in every library that has this model: the way, the level and the place there, `up.1.0`.
        scale: How often the latent was halved before it.
        attention: The self-attention, which has `to_k` and `to_v`.
        context: What the attention calls the tokens it makes keys and values of.
        masks: What it may call a mask over keys.
        extra_tokens: What it may call tokens that it puts in front of its own.
        needs_all_keys: Whether the attention, as it is set up now, cannot do with fewer keys.
        takes_kept_rows: Whether kept rows may be handed to it as its context, as it is set up now.
        check: Raises where keys cannot be left out of the attention as it is set up now.
        cross_attention: The attention to text, where there is one.
        feed_forward: The feed-forward part, where there is one.
        recomputed: The first module that sees the block's input where the block checkpoints its own inside.
    """

    root: Any
    net: Any
    block: nn.Module
    holder: Any
    grid_of: Callable[[Any], Grid]
    level: int
    name: str
    scale: int
    attention: Any
    context: str
    masks: tuple[str, ...]
    extra_tokens: str
    needs_all_keys: Callable[[nn.Module], bool]
    takes_kept_rows: Callable[[nn.Module], bool]
    check: Callable[[nn.Module], None]
    cross_attention: Any
    feed_forward: nn.Module | None
    recomputed: nn.Module | None

    @property
    def width(self) -> tuple[int, ...]:
        """The channels of its tokens, and of the text where it looks at any."""
        return tuple(part.to_k.in_features for part in (self.attention, self.cross_attention) if part is not None)
