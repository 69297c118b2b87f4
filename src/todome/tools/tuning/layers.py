"""Layers of the model that is tuned, and the plans that set some of them to a factor."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...hosts import find_layers
from ...levers.layers import DownsampleLayers, PlannedLayer
from ...levers.lever import Piece
from ...levers.plan import CONDITIONS, Plan
from ...patch import denoisers
from ..measuring.attention_costs import LevelCost

SWITCH = 0.5  # of the steps: where factors may change
Factors: TypeAlias = tuple[float, float]  # before and from the switch on
Choices: TypeAlias = Mapping[str, Factors]  # by the name of a layer; others are dense
DENSE: Factors = (1, 1)


@dataclass(frozen=True)
class TunedLayers:
    """Every layer of a model as it is when dense, and the level that each is at."""

    dense: Mapping[str, PlannedLayer]
    levels: Mapping[str, int]

    def plan(self, choices: Choices, **measured: Any) -> Plan:
        """A plan of these choices, with what was measured."""
        chosen = {name: self.dense[name]._replace(pieces=pieces_of(factors)) for name, factors in choices.items()}
        conditions = {name: measured.pop(name) for name in CONDITIONS if name in measured}
        return Plan((DownsampleLayers({**self.dense, **chosen}),), conditions, measured)

    def at_level(self, level: int) -> list[str]:
        return [name for name, own in self.levels.items() if own == level]


def tuned_layers(pipe: Any, levels: list[LevelCost]) -> TunedLayers:
    grids = {level.level: level.keys for level in levels}
    found = {layer.name: layer for layer in find_layers(*denoisers(pipe))}
    dense = {name: PlannedLayer.flat(1, grids[layer.level], layer.width) for name, layer in found.items()}
    return TunedLayers(dense, {name: layer.level for name, layer in found.items()})


def pieces_of(factors: Factors) -> tuple[Piece, ...]:
    """What a layer with these factors is set to over a run."""
    now, later = factors
    return (Piece(1.0, now),) if now == later else (Piece(SWITCH, now), Piece(1.0, later))


def factors_of(layer: PlannedLayer) -> list[str]:
    """The factors of a layer one after the other, for people; 1 is dense."""
    return [f"{factor or 1:g}" for _, factor in layer.pieces]


def fingerprint(model: Any) -> str:
    """Digest of a model's config, the names of its weights and the size of those of its attention: LoRAs change it."""
    config = {name: value for name, value in sorted(dict(model.config).items()) if not name.startswith("_")}
    names = [name for name, _ in model.named_parameters()]
    weights = [f"{layer.attention.to_k.weight.float().norm().item():.4g}" for layer in find_layers(model)]
    text = json.dumps([config, names, weights], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
