"""Sensitivity of a result to each layer: the error that it makes when it alone is reduced, in one half of a run.

Errors are taken as additive, over layers and over the halves of a run: then two drawings for each layer and factor tell
of every pair of factors. How far that holds is seen when a plan is drawn (`search`).
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from .drawings import Drawings
from .layer_times import FACTORS, LayerTimes
from .layers import DENSE, Choices, Factors, TunedLayers
from .records import Records


class Probe(NamedTuple):
    """One drawing: a layer that is reduced in one half of the run."""

    layer: str
    half: int
    factor: float

    @property
    def factors(self) -> Factors:
        return (self.factor, 1) if self.half == 0 else (1, self.factor)


class Sensitivity:
    """Mean squared error of the latents for each probe that was made."""

    def __init__(self) -> None:
        self.errors: dict[Probe, float] = {}

    def error(self, layer: str, factors: Factors) -> float | None:
        """What a layer with these factors changes; None where that was not measured."""
        parts = [Probe(layer, half, factor) for half, factor in enumerate(factors) if factor != 1]
        if any(part not in self.errors for part in parts):
            return None
        return sum(self.errors[part] for part in parts)

    def total(self, choices: Choices) -> float:
        return sum(self.error(layer, factors) or 0.0 for layer, factors in choices.items())

    def candidates(self, layer: str) -> list[Factors]:
        """What a layer can be set to, as far as it was measured. Dense is the first."""
        pairs = [(now, later) for now in (1, *FACTORS) for later in (1, *FACTORS)]
        return [DENSE, *(pair for pair in pairs if pair != DENSE and self.error(layer, pair) is not None)]


def probes(layers: TunedLayers, times: LayerTimes, worth: float) -> list[Probe]:
    """What is to be drawn, the most telling first: one factor after the other, of the layers that save most."""
    names = [name for name, level in layers.levels.items() if times.most(level) >= worth]
    names.sort(key=lambda name: -times.most(layers.levels[name]))
    known = times.saved
    return [
        Probe(name, half, factor)
        for factor in FACTORS
        for name in names
        for half in (0, 1)
        if (layers.levels[name], factor) in known
    ]


def measure_probes(
    wanted: list[Probe], layers: TunedLayers, drawings: Drawings, records: Records, found: Sensitivity
) -> Iterator[Probe]:
    """Makes the probes that were not made before; whoever iterates may stop at any time."""
    what = {probe: {"latent error": probe._asdict(), "steps": drawings.cheap_steps} for probe in wanted}
    found.errors |= {probe: records.found_before(what[probe]) for probe in wanted if what[probe] in records}
    left = [probe for probe in wanted if probe not in found.errors]
    made: Any = drawings.latent_errors([layers.plan({probe.layer: probe.factors}) for probe in left])
    with closing(made) as errors:
        for number, error in errors:
            probe = left[number]
            found.errors[probe] = records.measure(what[probe], lambda error=error: error)
            yield probe
