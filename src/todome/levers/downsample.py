"""Fewer keys: the settings of token downsampling."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..errors import invalid_value
from ..tokens.grid import Grid, Phase, kept_count, smallest_factor
from .checks import as_tuple, format_grid, is_number, like_given
from .lever import LevelLever, per_level, stateless_randint

AUTO_KEYS = 4096  # "auto" leaves at most this many keys: what SD 1.x has at 512 px, where attention is cheap


@dataclass(frozen=True)
class Downsample(LevelLever):
    """Token downsampling: every query attends to 1 key in factor x factor (ToDo, arXiv 2402.13573), dithered.

    Args: Important
        factor: How much to reduce. `"auto"` (default) is the smallest whole factor that leaves at most 4096 keys at
            each level: 1 at 512 px, 2 at 1024, 3 at 1536, 4 at 2048 on SD 1.x. A number is for level 1, the finest
            resolution with self-attention; `(2, 2)` sets levels 1 and 2, which is faster, but less close to full
            attention (dense). Floats work: 1.5 keeps 4 keys of every 3 x 3. On a CPU set 2: it gains at 512 px too.
        stop: The fraction of the steps after which it is off. With 0.8 the last fifth of the steps, which draws the
            details, is dense; this costs a fifth of the gain.

    Args: To tinker with
        phase: Which key of each cell is kept. `"dither"` (default) keeps a different one at every step, each exactly
            once in factor x factor steps: its errors cancel out over the run. `"fixed"` always keeps the corner, as
            ToDo does. `"random"` draws a phase at random at every step, so some keys are used later than others.
        start: The fraction of the steps before which it is off.
        seed: Seed of the cells' orders and of random phases. The same seed gives the same picture.
    """

    level_field, unit = "factor", "keys"
    factor: float | Sequence[float] | Literal["auto"] = "auto"
    phase: Phase = "dither"
    start: float = 0.0
    stop: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", self._checked_factor(self.factor))
        if self.phase not in get_args(Phase):
            remedy = '"dither" is closest to the dense picture'
            raise invalid_value("phase", self.phase, '"dither", "fixed" or "random"', remedy)
        self.check_common()

    @staticmethod
    def _checked_factor(factor: Any) -> Any:
        allowed = '"auto", a number of at least 1, or one number per level'
        if isinstance(factor, str) and factor == "auto":
            return factor
        factors = as_tuple(factor)
        if not factors:
            raise invalid_value("factor", factor, allowed, "Use factor=(2, 2) for the first two levels")
        if not all(is_number(one) for one in factors):
            raise invalid_value("factor", factor, allowed, "Use factor=2 to keep 1 key in 4", TypeError)
        if not all(math.isfinite(one) and one >= 1 for one in factors):
            raise invalid_value("factor", factor, allowed, "Use factor=1 to leave a level dense")
        return like_given(factor, factors)

    def phase_index(self, step: int) -> int:
        return stateless_randint(self.seed, step) if self.phase == "random" else step

    def levels(self, available: int) -> Mapping[int, float | Literal["auto"]]:
        if isinstance(self.factor, str):
            return dict.fromkeys(range(1, available + 1), self.factor)
        return per_level("factor", self.factor, available, off=1)

    @staticmethod
    def factor_on(grid: Grid, factor: float | Literal["auto"]) -> float:
        """The factor a level's setting means on this grid; 1 is dense."""
        if factor == "auto":
            return smallest_factor(grid, AUTO_KEYS)
        if factor > min(grid):
            allowed = f"at most {min(grid)} on a grid of {format_grid(grid)} tokens"
            raise invalid_value("factor", factor, allowed, "Lower the factor, or make the picture larger")
        return factor

    def kept_count(self, grid: Grid, setting: float | Literal["auto"]) -> int:
        return kept_count(grid, self.factor_on(grid, setting), self.phase)
