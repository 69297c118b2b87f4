"""Plans: a factor for each layer of one model, as `todome tune` measures them. Loaded where they are asked for."""

import json
import math
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from .errors import invalid_value
from .reductions import Downsample, Level, Reduction, as_tuple, is_number
from .tokens.grid import Grid, RowTable, downsampling_table, kept_count

SCHEMA = 1  # of the file
AGAIN = "Make the plan again"


class PlannedLayer(NamedTuple):
    """What a plan has for one layer of a model."""

    factor: float
    later: float  # the factor from the plan's `switch` on
    tokens: int  # of its grid when it was measured
    width: tuple[int, ...]  # channels of its tokens, and of the text: those of another model may differ


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
class Plan(Reduction):
    """A factor for each layer, dithered. `todome.tune` makes one for a model, a size and a budget.

    Args: Important
        layers: What each layer is set to, by its name, such as `up.1.0`: the way, the level, the place there.
        switch: The fraction of the steps from which on each layer's second factor, `later`, holds.

    Args: To tinker with
        start: The fraction of the steps before which it is off.
        stop: The fraction of the steps after which it is off.
        seed: Seed of the cells' orders. The same seed gives the same picture.
        measured: What it was measured on, how close to full attention and how fast it was.
    """

    level_field, unit = "factor", "keys"
    layers: Mapping[str, PlannedLayer]
    switch: float = 1.0
    start: float = 0.0
    stop: float = 1.0
    seed: int = 0
    measured: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.layers:
            raise invalid_value("layers", self.layers, "a factor for each layer", "Tune the model again: todome tune")
        layers = {checked_name(name): checked(name, layer) for name, layer in self.layers.items()}
        check_measured(self.measured)
        object.__setattr__(self, "layers", FrozenDict(layers))
        object.__setattr__(self, "measured", FrozenDict(self.measured))
        self._check_common("switch")

    @property
    def falls(self) -> bool:
        return self.switch < 1 and any(layer.factor != layer.later for layer in self.layers.values())

    @property
    def windowed(self) -> bool:
        return super().windowed or self.falls

    def phase_index(self, step: int) -> int:
        return step

    def is_late(self, step: int, steps: int) -> bool:
        return self.falls and step + 1e-6 >= self.switch * steps

    def settings(self, layers: Sequence[Any]) -> list[Any]:
        """A network that has some of the plan's layers (a ControlNet) gets their factors; another one stays dense."""
        nets: dict[Any, dict[str, tuple[int, ...]]] = {}
        for layer in layers:
            nets.setdefault(layer.net, {})[layer.name] = layer.width
        fitting = {net for net, widths in nets.items() if widths.items() <= self.widths.items()}
        if not any(nets[net] == self.widths for net in fitting):
            self.refuse_model(next(iter(nets.values())))
        for net in nets.keys() - fitting:
            warnings.warn(
                f"This plan is for another model than the {type(net).__name__}: it stays dense.", stacklevel=5
            )
        return [self.parts(layer.name) if layer.net in fitting else None for layer in layers]

    def parts(self, name: str) -> tuple[Setting, ...]:
        """The setting of a layer, and that from the switch on where there is one."""
        layer = self.layers[name]
        factors = (layer.factor, layer.later) if self.falls else (layer.factor,)
        return tuple(Setting(factor, layer.tokens) for factor in factors)

    def part(self, late: bool) -> "Plan":
        """The plan as it is before its switch, or after it, for a whole run."""
        own = {name: layer.later if late else layer.factor for name, layer in self.layers.items()}
        layers = {name: layer._replace(factor=own[name], later=own[name]) for name, layer in self.layers.items()}
        return Plan(layers, start=self.start, stop=self.stop, seed=self.seed)

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

    def kept_count(self, grid: Grid, setting: Setting) -> int:
        return kept_count(grid, setting.factor_on(grid), "dither")

    def build_table(self, grid: Grid, setting: Setting, seed: int) -> RowTable:
        if math.prod(grid) != setting.tokens:
            share = f"{math.prod(grid) / setting.tokens:.2g}"
            warnings.warn(
                f"This plan was measured on pictures of another size; here are {share} times as many tokens. About as "
                "many keys are kept as there; how close and how fast that is was not measured.",
                stacklevel=2,
            )
        return downsampling_table(grid, setting.factor_on(grid), "dither", seed)

    def summary(self, settings: Sequence[tuple[Setting, ...]]) -> str:
        now, later = (factor_list([parts[i].factor for parts in settings]) for i in (0, -1))
        return f"{now} (from {self.switch:.0%} on {later})" if later != now else now

    def describe(self, level: Level) -> str:
        differ = level.grids and "," in level.setting
        return super().describe(level) + " on average" * bool(differ)

    def __str__(self) -> str:
        reduced = sum(max(layer.factor, layer.later) > 1 for layer in self.layers.values())
        found = {name: self.measured.get(name) for name in ("psnr", "speedup")}
        told = f", {found['psnr']:.1f} dB to dense, {found['speedup']:.2f}x as fast" if all(found.values()) else ""
        return f"Plan: {reduced} of {len(self.layers)} layers reduced{told}"

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.layers.items())), self.switch, self.start, self.stop, self.seed))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan as JSON, whole or not at all."""
        layers = {name: layer._asdict() for name, layer in self.layers.items()}
        own = {name: getattr(self, name) for name in ("switch", "start", "stop", "seed")}
        text = json.dumps({"todome_plan": SCHEMA, **own, "layers": layers, "measured": self.measured}, indent=1)
        # in a folder of its own: two that write the same plan must not write the same file
        with TemporaryDirectory(prefix=".", suffix=".part", dir=Path(path).parent) as folder:
            unfinished = Path(folder, "plan.json")
            unfinished.write_text(text + "\n", encoding="utf-8")
            unfinished.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Plan":
        """Reads a plan that `save` wrote."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, RecursionError, ValueError) as error:
            raise not_a_plan(path, f"it cannot be read ({error})") from error
        if not isinstance(found, dict) or "todome_plan" not in found:
            raise not_a_plan(path, "it is something else")
        if found["todome_plan"] != SCHEMA:
            raise not_a_plan(path, f"its format is {found['todome_plan']!r}, and this version of todome reads {SCHEMA}")
        try:
            layers = {name: PlannedLayer(**layer) for name, layer in found["layers"].items()}
            own = {name: found[name] for name in ("switch", "start", "stop", "seed")}
            return cls(layers, **own, measured=found.get("measured", {}))
        except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
            raise not_a_plan(path, f"a part of it is missing or broken ({error})") from error


def factor_list(factors: Sequence[float]) -> str:
    """Factors for people: one where all are the same."""
    return ", ".join(f"{factor:g}" for factor in (factors if len(set(factors)) > 1 else factors[:1]))


def checked_name(name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"(down|mid|up)\.\d+\.\d+", name):
        raise invalid_value("layers", name, "names such as up.1.0: the way, the level, the place there", AGAIN)
    return name


def checked(name: str, layer: PlannedLayer) -> PlannedLayer:
    now, later = as_tuple(Downsample((layer.factor, layer.later)).factor)  # refuses what is no factor
    if not is_count(layer.tokens):
        raise invalid_value(f"tokens of {name}", layer.tokens, "a whole number of at least 1", AGAIN)
    if not isinstance(layer.width, (list, tuple)) or not all(map(is_count, layer.width)):
        raise invalid_value(f"width of {name}", layer.width, "whole numbers of at least 1", AGAIN)
    return PlannedLayer(now, later, int(layer.tokens), tuple(map(int, layer.width)))


def is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def check_measured(measured: Any) -> None:
    """What is read of a plan's measurements is of the kind that is expected; the rest is for people."""
    if not isinstance(measured, Mapping):
        raise invalid_value("measured", measured, "what was measured, by name", AGAIN)
    for name in ("psnr", "speedup"):
        if not is_number(measured.get(name, 0)):
            raise invalid_value(f"measured {name}", measured[name], "a number", AGAIN)
    size = measured.get("size", (1, 1))
    if not isinstance(size, (list, tuple)) or len(size) != 2 or not all(map(is_count, size)):
        raise invalid_value("measured size", size, "width and height in pixels", AGAIN)


def not_a_plan(path: Any, why: str) -> ValueError:
    return ValueError(f"{path} is not a plan: {why}. Plans are written by todome tune.")
