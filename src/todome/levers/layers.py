"""Fewer keys, layer by layer: the settings that `todome tune` finds for one model."""

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ..errors import invalid_value
from ..tokens.grid import Grid, Phase, kept_count
from .checks import is_count, is_number, plain_number
from .downsample import Downsample
from .lever import ROUNDING, Level, Parts, Piece, TokenLever, setting_at

AGAIN = "Make the plan again"


class PlannedLayer(NamedTuple):
    """What one layer of a model is set to.

    Args:
        pieces: Factors, each until a fraction of the steps; None is dense.
        tokens: Of its grid when it was measured.
        width: Channels of its tokens, and of the text: those of another model may differ.
    """

    pieces: tuple[Piece, ...]
    tokens: int
    width: tuple[int, ...]

    @classmethod
    def flat(cls, factor: float | None, tokens: int, width: Sequence[int]) -> "PlannedLayer":
        """A layer with one factor over the whole run."""
        return cls((Piece(1.0, factor),), tokens, tuple(width))

    @property
    def is_reduced(self) -> bool:
        return any(factor is not None and factor > 1 for _, factor in self.pieces)


class Setting(NamedTuple):
    """The setting of a layer in one part of a run."""

    factor: float
    tokens: int

    def factor_on(self, grid: Grid) -> float:
        """About as many keys are left of any grid as were left of the one that was measured."""
        scaled = self.factor * (math.prod(grid) / self.tokens) ** 0.5
        return min(max(scaled, 1.0), float(min(grid)))


class FrozenDict(dict[str, Any]):
    """Dict that stays as it is; unlike `MappingProxyType` it can be copied and pickled."""

    def refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("A plan cannot be changed: make another one with dataclasses.replace.")

    __setitem__ = __delitem__ = __ior__ = pop = popitem = clear = refuse
    update: Any = refuse
    setdefault: Any = refuse

    def __reduce__(self) -> Any:
        return FrozenDict, (dict(self),)


@dataclass(frozen=True)
class DownsampleLayers(TokenLever):
    """Token downsampling with factors for each layer, dithered.

    Args:
        layers: What each layer is set to, by its name, such as `up.1.0`: the way, the level, the place there.
        start: The fraction of the steps before which it is off.
        stop: The fraction of the steps after which it is off.
        seed: Seed of the cells' orders. The same seed gives the same picture.
    """

    level_field, unit = "factor", "keys"
    phase: ClassVar[Phase] = "dither"
    layers: Mapping[str, PlannedLayer]
    start: float = 0.0
    stop: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.layers, Mapping) or not self.layers:
            raise invalid_value("layers", self.layers, "what each layer is set to, by its name", AGAIN)
        layers = {checked_name(name): checked_layer(name, layer) for name, layer in self.layers.items()}
        object.__setattr__(self, "layers", FrozenDict(layers))
        self.check_common()

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.layers)), self.start, self.stop, self.seed))

    def phase_index(self, step: int) -> int:
        return step

    def pieces(self, layers: Sequence[Any]) -> list[tuple[Piece, ...]]:
        """A network that has some of the layers (a ControlNet) gets their factors; another one stays dense."""
        nets: dict[Any, dict[str, tuple[int, ...]]] = {}
        for layer in layers:
            nets.setdefault(layer.net, {})[layer.name] = layer.width
        fitting = {net for net, widths in nets.items() if widths.items() <= self.widths.items()}
        if not any(nets[net] == self.widths for net in fitting):
            self.refuse_model(next(iter(nets.values())))
        for net in nets.keys() - fitting:
            name = type(net).__name__
            warnings.warn(f"This plan is for another model than the {name}: it stays dense.", stacklevel=6)
        return [self.pieces_of(layer.name) if layer.net in fitting else () for layer in layers]

    def pieces_of(self, name: str) -> tuple[Piece, ...]:
        layer = self.layers[name]
        setting = {factor: Setting(factor, layer.tokens) for _, factor in layer.pieces if factor is not None}
        return self.in_window([Piece(until, setting.get(factor)) for until, factor in layer.pieces])

    @property
    def widths(self) -> dict[str, tuple[int, ...]]:
        return {name: layer.width for name, layer in self.layers.items()}

    def refuse_model(self, widths: Mapping[str, tuple[int, ...]]) -> None:
        """Refuses a model of another architecture than the plan's, and names a layer that differs."""
        own = self.widths
        name = min(name for name in {*own, *widths} if own.get(name) != widths.get(name))
        shown = [f"{layers.get(name, 'missing')}" for layers in (own, widths)]
        raise ValueError(
            f"This plan is for another model: it has {len(own)} layers and this model {len(widths)}; the channels "
            f"of {name} are {shown[0]} in the plan and {shown[1]} in the model. Make one for this: todome tune."
        )

    def is_on(self, step: int, steps: int) -> bool:
        done = (step + ROUNDING) / steps
        return super().is_on(step, steps) and any(setting_at(own.pieces, done) for own in self.layers.values())

    def window_error(self, where: str, remedy: str) -> Exception:
        if (self.start, self.stop) != (0, 1):
            return super().window_error(where, remedy)
        ends = tuple(sorted({until for layer in self.layers.values() for until, _ in layer.pieces}))
        return invalid_value("until", ends, f"factors for a whole run, until (1,), {where}", remedy, RuntimeError)

    @staticmethod
    def factor_on(grid: Grid, setting: Setting) -> float:
        return setting.factor_on(grid)

    def kept_count(self, grid: Grid, setting: Setting) -> int:
        return kept_count(grid, setting.factor_on(grid), self.phase)

    def summary(self, parts: Parts, layers: Sequence[int]) -> str:
        settings = [[parts.settings[layer][part] for layer in layers] for part in range(len(parts.cuts) + 1)]
        found = {cut: factor_list(own) for cut, own in zip((0.0, *parts.cuts), settings, strict=True) if any(own)}
        first, *others = found.values()
        changed = [
            (cut, new) for cut, old, new in zip([*found][1:], [first, *others], others, strict=False) if new != old
        ]
        shown = ", ".join(f"from {cut:.0%} on {factors}" for cut, factors in changed)
        return f"{first} ({shown})" if changed else first

    def describe(self, level: Level) -> str:
        differ = level.grids and "," in str(level.setting)
        return super().describe(level) + " on average" * bool(differ)


def factor_list(settings: Sequence[Setting | None]) -> str:
    """The factors of some layers for people: one where all are the same."""
    factors = [1.0 if one is None else one.factor for one in settings]
    return ", ".join(f"{factor:g}" for factor in (factors if len(set(factors)) > 1 else factors[:1]))


def checked_name(name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"(down|mid|up)\.\d+\.\d+", name):
        raise invalid_value("layers", name, "names such as up.1.0: the way, the level, the place there", AGAIN)
    return name


def checked_layer(name: str, layer: PlannedLayer) -> PlannedLayer:
    if not is_count(layer.tokens):
        raise invalid_value(f"tokens of {name}", layer.tokens, "a whole number of at least 1", AGAIN)
    if not isinstance(layer.width, (list, tuple)) or not all(map(is_count, layer.width)):
        raise invalid_value(f"width of {name}", layer.width, "whole numbers of at least 1", AGAIN)
    pieces = checked_pieces(name, layer.pieces)
    return PlannedLayer(pieces, int(layer.tokens), tuple(map(int, layer.width)))


def checked_pieces(name: str, pieces: Any) -> tuple[Piece, ...]:
    pairs = isinstance(pieces, (list, tuple)) and all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pieces)
    untils = [until for until, _ in pieces] if pairs else []
    rising = all(map(is_number, untils)) and all(a < b for a, b in zip([0, *untils], untils, strict=False))
    if not untils or not rising or untils[-1] != 1:
        allowed = "pairs of a fraction of the steps and a factor, of which the last fraction is 1"
        raise invalid_value(f"pieces of {name}", pieces, allowed, AGAIN)
    return tuple(Piece(plain_number(until), checked_factor(factor)) for until, factor in pieces)


def checked_factor(factor: Any) -> float | None:
    if factor is None:
        return None
    checked = Downsample(factor).factor  # refuses what is no factor
    if isinstance(checked, (str, tuple)):
        raise invalid_value("factor", factor, "a number of at least 1", AGAIN)
    return checked  # pyright: ignore[reportReturnType]
