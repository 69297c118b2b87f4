"""Plans for models of the zoo, without measuring."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from todome import Plan
from todome.levers.layers import DownsampleLayers, PlannedLayer
from todome.levers.lever import Piece


def planned(
    factor: float, tokens: int, width: Sequence[int], later: float | None = None, switch: float = 0.5
) -> PlannedLayer:
    """A layer with one factor, or with another one from the switch on."""
    if later is None or later == factor:
        return PlannedLayer.flat(factor, tokens, width)
    return PlannedLayer((Piece(switch, factor), Piece(1.0, later)), tokens, tuple(width))


def plan_of(layers: Mapping[str, PlannedLayer], conditions: Any = (), evidence: Any = (), **options: Any) -> Plan:
    return Plan((DownsampleLayers(layers, **options),), dict(conditions), dict(evidence))


def plan_for_all(layers: Iterable[Any], factor: float = 2, tokens: int = 64, **options: Any) -> Plan:
    """A plan with one factor for all of these layers of a model."""
    return plan_of({layer.name: planned(factor, tokens, layer.width, **options) for layer in layers})
