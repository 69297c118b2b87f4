"""Layers of the model that is tuned, and the plans that set some of them to a factor."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...hosts import find_layers
from ...patch import denoisers
from ...plan import Plan, PlannedLayer
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
        """A plan of these choices."""
        layers = {name: layer._replace(factor=f, later=g) for name, layer in self.dense.items() for f, g in [DENSE]}
        layers |= {name: self.dense[name]._replace(factor=f, later=g) for name, (f, g) in choices.items()}
        falls = any(layer.factor != layer.later for layer in layers.values())
        return Plan(layers, switch=SWITCH if falls else 1.0, measured=measured)

    def at_level(self, level: int) -> list[str]:
        return [name for name, own in self.levels.items() if own == level]


def tuned_layers(pipe: Any, levels: list[LevelCost]) -> TunedLayers:
    grids = {level.level: level.keys for level in levels}
    found = {layer.name: layer for model in denoisers(pipe) for layer in find_layers(model)}
    dense = {name: PlannedLayer(1, 1, grids[layer.level], layer.width) for name, layer in found.items()}
    return TunedLayers(dense, {name: layer.level for name, layer in found.items()})


def fingerprint(model: Any) -> str:
    """Digest of a model's config, the names of its weights and the size of those of its attention: LoRAs change it."""
    config = {name: value for name, value in sorted(dict(model.config).items()) if not name.startswith("_")}
    names = [name for name, _ in model.named_parameters()]
    weights = [f"{layer.attention.to_k.weight.float().norm().item():.4g}" for layer in find_layers(model)]
    text = json.dumps([config, names, weights], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
