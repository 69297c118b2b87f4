"""What a user can ask for: frozen, checked settings that know no module and no tensor."""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from ..errors import invalid_value
from .checks import as_tuple, checked_fraction, checked_seed, format_grid

Grid = tuple[int, ...]
ROUNDING = 1e-6  # of a step, so that 0.1 + 0.2 of 10 steps are 3


class Lever(ABC):
    """Settings of one way to leave something out. `hooks.registry` says what attaches them to a model.

    Attributes:
        family: What they leave out: "tokens" in a call. One lever of each family can be on.
    """

    family: ClassVar[str]


class Piece(NamedTuple):
    """What a layer is set to until a fraction of the steps."""

    until: float
    setting: Any  # None: dense


class Level(NamedTuple):
    """One resolution of a model: how many layers it has there, what they are set to, which grids they met of late."""

    level: int
    layers: int
    setting: Any  # a factor or a ratio; None where the level is left dense
    grids: Mapping[Grid, int]  # what attention is left with of each grid


@dataclass(frozen=True)
class Parts:
    """A run cut into parts, in each of which every layer has one setting.

    Args:
        cuts: The fractions of the steps at which a part ends and the next one begins.
        settings: Of each layer in each part; None where it is dense.
    """

    cuts: tuple[float, ...]
    settings: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, layers: Sequence[Sequence[Piece]]) -> "Parts":
        """The parts of a run whose layers have these pieces."""
        begins = sorted({0.0, *(piece.until for pieces in layers for piece in pieces if piece.until < 1)})
        found = {begin: [setting_at(pieces, begin) for pieces in layers] for begin in begins}
        changes = [0.0, *(after for before, after in pairwise(begins) if found[after] != found[before])]
        return cls(tuple(changes[1:]), tuple(zip(*(found[begin] for begin in changes), strict=True)))

    def at(self, step: int, steps: int) -> int | None:
        """The part that a step of so many is in; None where everything is dense in it."""
        done = step + ROUNDING
        return self.part_after(sum(done >= cut * steps for cut in self.cuts))

    def part_after(self, passed: int) -> int | None:
        """The part after so many cuts; None where everything is dense in it."""
        return passed if any(settings[passed] is not None for settings in self.settings) else None

    def is_reduced(self, layer: int) -> bool:
        return any(setting is not None for setting in self.settings[layer])


def setting_at(pieces: Sequence[Piece], done: float) -> Any:
    """The setting that holds after a fraction of the steps."""
    return next((piece.setting for piece in pieces if done < piece.until), None)


class TokenLever(Lever):
    """Base of the levers that leave out tokens of a call: when they are on, and where their randomness comes from."""

    family = "tokens"
    level_field: ClassVar[str]  # the field that may differ from level to level
    unit: ClassVar[str]  # what there are fewer of: keys, tokens
    start: float
    stop: float
    seed: int

    @abstractmethod
    def phase_index(self, step: int) -> int:
        """The phase index of this step: which of its members every cell keeps."""

    @abstractmethod
    def pieces(self, layers: Sequence[Any]) -> list[tuple[Piece, ...]]:
        """What each layer is set to over a run; nothing for a layer that stays dense."""

    @abstractmethod
    def kept_count(self, grid: Grid, setting: Any) -> int:
        """How many tokens of a grid are left with a layer's setting."""

    def parts(self, layers: Sequence[Any]) -> Parts:
        """A run cut where the setting of any of these layers changes."""
        return Parts.of(self.pieces(layers))

    def seed_of(self, layer: int) -> int:
        """A seed for each layer: both halves of a guided batch keep the same rows, two layers do not."""
        return stateless_randint(self.seed, layer)

    def in_window(self, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
        """What a layer with these pieces is set to: dense before start and after stop."""
        inside = [Piece(min(max(piece.until, self.start), self.stop), piece.setting) for piece in pieces]
        all_of_it = (Piece(0.0, None), Piece(self.start, None), *inside, Piece(1.0, None))
        return tuple(after for before, after in pairwise(all_of_it) if after.until > before.until)

    def is_on(self, step: int, steps: int) -> bool:
        """Whether a step of so many is inside the window."""
        return self.start * steps <= step + ROUNDING < self.stop * steps

    def check_self_attention_alone(self) -> None:
        """Raises where more of a block than its self-attention is asked for, for hosts that let nobody else in."""

    def window_error(self, where: str, remedy: str) -> Exception:
        """The error for a window where nothing tells which step of a run a call is."""
        window = (self.start, self.stop)
        return invalid_value("(start, stop)", window, f"(0.0, 1.0) {where}", remedy, RuntimeError)

    def summary(self, parts: Parts, layers: Sequence[int]) -> Any:
        """What the layers of one level are set to, for people."""
        return next(setting for setting in parts.settings[layers[0]] if setting is not None)

    def level(self, number: int, parts: Parts, layers: Sequence[int], grids: Iterable[Grid], count: int) -> Level:
        """A level of so many layers, of which some are reduced, and what is left of some grids there on average."""
        first = [next(setting for setting in parts.settings[layer] if setting is not None) for layer in layers]
        if not layers:
            return Level(number, count, None, {})
        kept = {grid: sum(self.kept_count(grid, setting) for setting in first) // len(first) for grid in grids}
        return Level(number, count, self.summary(parts, layers), kept)

    def describe(self, level: Level) -> str:
        """A line about one level, for people."""
        head = f"level {level.level}, {level.layers} layer{'s' * (level.layers != 1)}: "
        if level.setting is None:
            return head + "dense"
        grids = [f"{format_grid(grid)} = {math.prod(grid)} -> {left} {self.unit}" for grid, left in level.grids.items()]
        return head + f"{self.level_field} {level.setting}, " + ("; ".join(grids) or "not called yet")

    def check_common(self) -> None:
        """Checks the fields that all token levers have."""
        for name in ("start", "stop"):
            value = checked_fraction(name, getattr(self, name), "start=0, stop=1 is the whole run")
            object.__setattr__(self, name, value)
        if self.start > self.stop:
            remedy = f"Swap them, or raise stop to {self.start} or more"
            raise invalid_value("start", self.start, f"at most stop, which is {self.stop}", remedy)
        object.__setattr__(self, "seed", checked_seed(self.seed))


class LevelLever(TokenLever):
    """Token lever whose layers of one level have the same setting."""

    @abstractmethod
    def levels(self, available: int) -> Mapping[int, Any]:
        """The setting of each level that is to be reduced, of the `available` ones."""

    def pieces(self, layers: Sequence[Any]) -> list[tuple[Piece, ...]]:
        levels = self.levels(max(layer.level for layer in layers))
        whole = [[Piece(1.0, levels[layer.level])] if layer.level in levels else [] for layer in layers]
        return [self.in_window(pieces) if pieces else () for pieces in whole]


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


def one_of_each(given: Sequence[Any]) -> tuple[Lever, ...]:
    """The levers among what was given, of which no two may be of one family; a plan stands for its levers."""
    found: dict[str, Lever] = {}
    for lever in (lever for one in given for lever in getattr(one, "levers", (one,))):
        family = getattr(lever, "family", None)
        if family is None:
            allowed = "todome.Downsample(...), todome.Merge(...), todome.Reuse(...) or todome.Plan.load(FILE)"
            raise invalid_value("lever", lever, allowed, "Use todome.Downsample(factor=2)", TypeError)
        if family in found:
            allowed = f"one lever for {family}, and there is {found[family]}"
            raise invalid_value("lever", lever, allowed, "Leave one of the two out")
        found[family] = lever
    return tuple(found.values())
