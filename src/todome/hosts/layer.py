"""What a host says of one layer of its model."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ..tokens.grid import Grid


def grid_of_features(features: Tensor) -> Grid:
    """The grid of what a holder is called with, (batch, channels, height, width)."""
    return features.shape[-2], features.shape[-1]


def never(attention: nn.Module) -> bool:
    return False


def allow(attention: nn.Module) -> None:
    pass


@dataclass(frozen=True, eq=False)
class Layer:
    """One block with self-attention over image tokens, and where its parts are.

    Attributes:
        root: The module in which it was looked for.
        block: The module that is called with the tokens, (batch, tokens, channels).
        holder: The module around it that sees the grid.
        attention: The self-attention, which has `to_k` and `to_v`.
        scale: How often the latent was halved before it.
        way: Whether it is on the way "down", in the "mid" or on the way "up".
        net: The network it is a part of: the root, or one of several in it.
        grid_of: The grid of the tokens, from what the holder is called with.
        context: What the attention calls the tokens it makes keys and values of.
        masks: What it may call a mask over keys.
        extra_tokens: What it may call tokens that it puts in front of its own.
        needs_all_keys: Whether the attention, as it is set up now, cannot do with fewer keys.
        takes_kept_rows: Whether kept rows may be handed to it as its context, as it is set up now.
        check: Raises where keys cannot be left out of the attention as it is set up now.
        cross_attention: The attention to text, where there is one.
        feed_forward: The feed-forward part, where there is one.
        recomputed: The first module that sees the block's input where the block checkpoints its own inside.
        level: 1 = the finest resolution at which the models have self-attention. Set by `numbered`, as is the name.
        name: The same in every library that has this model: the way, the level and the place there, `up.1.0`.
    """

    root: Any
    block: nn.Module
    holder: Any
    attention: Any
    scale: int
    way: str = "mid"
    net: Any = None
    grid_of: Callable[[Any], Grid] = grid_of_features
    context: str = "encoder_hidden_states"
    masks: tuple[str, ...] = ()
    extra_tokens: str = ""
    needs_all_keys: Callable[[nn.Module], bool] = never
    takes_kept_rows: Callable[[nn.Module], bool] = never
    check: Callable[[nn.Module], None] = allow
    cross_attention: Any = None
    feed_forward: nn.Module | None = None
    recomputed: nn.Module | None = None
    level: int = 0
    name: str = ""

    @property
    def width(self) -> tuple[int, ...]:
        """The channels of its tokens, and of the text where it looks at any."""
        return tuple(part.to_k.in_features for part in (self.attention, self.cross_attention) if part is not None)


def numbered(layers: Sequence[Layer]) -> list[Layer]:
    """The layers with their levels, those of all models together, and their names, those of each network alone."""
    scales = sorted({layer.scale for layer in layers})
    counts: Counter[tuple[Any, str, int]] = Counter()
    found = []
    for layer in layers:
        level, net = scales.index(layer.scale) + 1, layer.root if layer.net is None else layer.net
        place = counts[net, layer.way, level]
        counts[net, layer.way, level] += 1
        found.append(replace(layer, net=net, level=level, name=f"{layer.way}.{level}.{place}"))
    return found
