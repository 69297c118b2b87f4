"""Merged tokens: the settings of token merging."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from ..errors import invalid_value
from ..tokens.grid import Grid
from .checks import as_tuple, check_flags, format_grid, is_number, like_given
from .lever import LevelLever, per_level, stateless_randint


@dataclass(frozen=True)
class Merge(LevelLever):
    """Token merging: similar tokens are averaged before a layer and share its result (ToMe for SD, arXiv 2303.17604).

    Args: Important
        ratio: The share of tokens that are merged into other tokens. 0.5 (default) is what ToMe recommends; at most
            1 - 1 / (stride[0] * stride[1]). A number is for level 1, a sequence gives each level its own.
        stop: The fraction of the steps after which it is off.

    Args: To tinker with
        stride: One destination in stride[0] x stride[1] tokens (height, width). Larger strides allow larger ratios.
        random: Draw a new destination in each cell at every step (default), instead of its corner.
        attention: Whether self-attention sees merged tokens.
        cross_attention: Whether cross-attention does. Gains little speed and costs much quality.
        feed_forward: Whether the feed-forward layers do. Gains little speed and costs much quality.
        start: The fraction of the steps before which it is off.
        seed: Seed of the random destinations. The same seed gives the same picture.
    """

    level_field, unit = "ratio", "tokens"
    ratio: float | Sequence[float] = 0.5
    stride: tuple[int, int] = (2, 2)
    random: bool = True
    attention: bool = True
    cross_attention: bool = False
    feed_forward: bool = False
    start: float = 0.0
    stop: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_stride()
        object.__setattr__(self, "ratio", self._checked_ratio(self.ratio))
        check_flags(self, "random", "attention", "cross_attention", "feed_forward")
        if not (self.attention or self.cross_attention or self.feed_forward):
            remedy = "Leave attention=True"
            raise invalid_value("attention", False, "at least one of attention, cross_attention, feed_forward", remedy)
        self.check_common()

    def _check_stride(self) -> None:
        stride = self.stride
        several = isinstance(stride, (list, tuple))
        whole = several and all(isinstance(s, Integral) and not isinstance(s, bool) for s in stride)
        if not whole or len(stride) != 2 or min(stride) < 1 or max(stride) < 2:
            allowed = "a tuple of two whole numbers of at least 1 (height, width), not both 1"
            raise invalid_value("stride", stride, allowed, "The default is stride=(2, 2)")
        object.__setattr__(self, "stride", like_given(stride, tuple(stride)))

    def most(self) -> float:
        """The largest ratio the stride allows: everything but one token per cell."""
        return 1 - 1 / (self.stride[0] * self.stride[1])

    def _checked_ratio(self, ratio: Any) -> Any:
        most = self.most()
        allowed = f"from 0 to {most:g} with stride={self.stride}, or one such number per level"
        ratios = as_tuple(ratio)
        if not ratios:
            raise invalid_value("ratio", ratio, allowed, "Use ratio=(0.5, 0.3) for the first two levels")
        if not all(is_number(one) for one in ratios):
            raise invalid_value("ratio", ratio, allowed, "Use ratio=0.5 to merge half of the tokens", TypeError)
        if not all(0 <= one <= most for one in ratios):
            raise invalid_value("ratio", ratio, allowed, "Lower the ratio or use a larger stride")
        return like_given(ratio, ratios)

    def check_self_attention_alone(self) -> None:
        parts = (self.attention, self.cross_attention, self.feed_forward)
        if parts != (True, False, False):
            allowed = "(True, False, False): this host lets nobody else into the rest of a block"
            raise invalid_value("(attention, cross_attention, feed_forward)", parts, allowed, "Leave all three out")

    def phase_index(self, step: int) -> int:
        return stateless_randint(self.seed, step) if self.random else 0

    def levels(self, available: int) -> Mapping[int, float]:
        return per_level("ratio", self.ratio, available, off=0)

    def merged_on(self, grid: Grid, ratio: float) -> int:
        """How many tokens a level's ratio merges on this grid."""
        tokens = math.prod(grid)
        cells = math.prod(length // step for length, step in zip(grid, self.stride, strict=True))
        if cells == 0:
            allowed = f"at most the grid, which is {format_grid(grid)} tokens"
            raise invalid_value("stride", self.stride, allowed, "Lower the stride, or make the picture larger")
        return min(int(tokens * ratio), tokens - cells)

    def kept_count(self, grid: Grid, setting: float) -> int:
        return math.prod(grid) - self.merged_on(grid, setting)
