"""What a user can ask for: frozen, validated descriptions that know nothing of models."""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from .errors import invalid_value
from .tokens.grid import Grid, Phase, RowTable, downsampling_table, kept_count, smallest_factor
from .tokens.matching import MatchTable, matching_table
from .tokens.tables import Key, Table

AUTO_KEYS = 4096  # "auto" leaves at most this many keys: what SD 1.x has at 512 px, where attention is cheap


def is_number(value: Any) -> bool:
    """Whether it is a number, and none that is too large to compute with."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def plain_number(value: Any) -> Any:
    """A number of Python's own for one of numpy's, which JSON does not know."""
    return int(value) if isinstance(value, Integral) else float(value)


def as_tuple(value: Any) -> tuple[Any, ...]:
    """A setting for several levels as it is, a single one as that of level 1."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def like_given(given: Any, numbers: tuple[Any, ...]) -> Any:
    """Checked numbers as plain ones: a tuple where several were given."""
    plain = tuple(map(plain_number, numbers))
    return plain if isinstance(given, (list, tuple)) else plain[0]


def format_grid(grid: Grid) -> str:
    return "x".join(map(str, grid))


class Level(NamedTuple):
    """One resolution of a model: how many layers it has there, what they are set to, which grids they met of late."""

    level: int
    layers: int
    setting: Any  # a factor or a ratio; None where the level is left dense
    grids: Mapping[Grid, int]  # what attention is left with of each grid


class Reduction(ABC):
    """What all reductions have in common: when they are on, and where their randomness comes from."""

    level_field: ClassVar[str]  # the field that may differ from level to level
    unit: ClassVar[str]  # what there are fewer of: keys, tokens
    falls = False  # whether its settings change once during a run
    start: float
    stop: float
    seed: int

    @property
    def windowed(self) -> bool:
        return (self.start, self.stop) != (0.0, 1.0)

    @abstractmethod
    def phase_index(self, step: int) -> int:
        """The phase index of this step: which of its members every cell keeps."""

    @abstractmethod
    def settings(self, layers: Sequence[Any]) -> list[Any]:
        """The setting of each layer in each part of a run, of which most have one; None for a layer that stays dense."""

    @abstractmethod
    def kept_count(self, grid: Grid, setting: Any) -> int:
        """How many tokens of a grid are left with a level's setting."""

    @abstractmethod
    def build_table(self, grid: Grid, setting: Any, seed: int) -> Table:
        """The table of a grid for a layer with this setting and a seed of its own."""

    def is_on(self, step: int, steps: int) -> bool:
        """Whether a step of so many is inside the window."""
        done = step + 1e-6  # so that 0.1 + 0.2 of 10 steps are 3
        return self.start * steps <= done < self.stop * steps

    def is_late(self, step: int, steps: int) -> bool:
        """Whether a step of so many has the settings of later."""
        return False

    def window_error(self, where: str, remedy: str) -> Exception:
        """The error for a window where nothing tells which step of a run a call is."""
        names = ("start", "stop", *["switch"] * self.falls)
        given, allowed = tuple(getattr(self, name) for name in names), (0.0, 1.0, 1.0)[: len(names)]
        return invalid_value(f"({', '.join(names)})", given, f"{allowed} {where}", remedy, RuntimeError)

    def summary(self, settings: Sequence[Any]) -> Any:
        """The settings of the layers of one level, for people."""
        return settings[0][0]

    def describe(self, level: Level) -> str:
        """A line about one level, for people."""
        head = f"level {level.level}, {level.layers} layer{'s' * (level.layers != 1)}: "
        if level.setting is None:
            return head + "dense"
        grids = [f"{format_grid(grid)} = {math.prod(grid)} -> {left} {self.unit}" for grid, left in level.grids.items()]
        return head + f"{self.level_field} {level.setting}, " + ("; ".join(grids) or "not called yet")

    def _check_common(self, *fractions: str) -> None:
        for name in ("start", "stop", *fractions):
            value = getattr(self, name)
            if not is_number(value) or not 0 <= value <= 1:
                allowed, remedy = "a fraction of the steps from 0 to 1", "start=0, stop=1 is the whole run"
                raise invalid_value(name, value, allowed, remedy)
            object.__setattr__(self, name, plain_number(value))
        if self.start > self.stop:
            remedy = f"Swap them, or raise stop to {self.start} or more"
            raise invalid_value("start", self.start, f"at most stop, which is {self.stop}", remedy)
        if not isinstance(self.seed, Integral) or isinstance(self.seed, bool) or self.seed < 0:
            raise invalid_value("seed", self.seed, "a whole number of at least 0", "The default is seed=0")
        object.__setattr__(self, "seed", int(self.seed))


class LevelReduction(Reduction):
    """Reduction whose layers of one level have the same setting."""

    @abstractmethod
    def levels(self, available: int) -> Mapping[int, Any]:
        """The setting of each level that is to be reduced, of the `available` ones."""

    def settings(self, layers: Sequence[Any]) -> list[Any]:
        levels = self.levels(max(layer.level for layer in layers))
        return [(levels[layer.level],) if layer.level in levels else None for layer in layers]


@dataclass(frozen=True)
class Downsample(LevelReduction):
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
        self._check_common()

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

    def build_table(self, grid: Grid, setting: float | Literal["auto"], seed: int) -> RowTable:
        return downsampling_table(grid, self.factor_on(grid, setting), self.phase, seed)


@dataclass(frozen=True)
class Merge(LevelReduction):
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
        for field in ("random", "attention", "cross_attention", "feed_forward"):
            value, remedy = getattr(self, field), f"Use {field}=True or leave it out"
            if not isinstance(value, bool):
                raise invalid_value(field, value, "True or False", remedy, TypeError)
        if not (self.attention or self.cross_attention or self.feed_forward):
            remedy = "Leave attention=True"
            raise invalid_value("attention", False, "at least one of attention, cross_attention, feed_forward", remedy)
        self._check_common()

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

    def build_table(self, grid: Grid, setting: float, seed: int) -> MatchTable:
        return matching_table(grid, self.stride, self.random, self.kept_count(grid, setting), seed)


def per_level(field: str, given: float | Sequence[float], available: int, off: float) -> dict[int, float]:
    """The levels a number (level 1) or a sequence (level 1, 2, ...) sets to anything but off."""
    values = as_tuple(given)
    if len(values) > available:
        remedy = f"Leave out the last {len(values) - available}"
        raise invalid_value(field, given, f"at most {available} values, one for each level this model has", remedy)
    return {level: value for level, value in enumerate(values, start=1) if value != off}


def stateless_randint(seed: int, step: int) -> int:
    """A random number that is a function of (seed, step) alone, so that it can be drawn again."""
    return random.Random(f"{seed}/{step}").getrandbits(31)


def layer_table(reduction: Reduction, key: Key, grid: Grid) -> Table | None:
    """The table of a layer with a setting; None where all of its tokens stay.

    Its seed is its own: both halves of a guided batch keep the same rows, two layers do not.
    """
    number, setting = key
    if reduction.kept_count(grid, setting) == math.prod(grid):
        return None
    return reduction.build_table(grid, setting, stateless_randint(reduction.seed, number))
