"""Plans: levers with the evidence for them, as `todome tune` measures it. Loaded where they are asked for."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from ..errors import invalid_value
from .checks import is_count, is_number
from .downsample import Downsample
from .layers import AGAIN, DownsampleLayers, FrozenDict, PlannedLayer
from .lever import Lever, Piece, one_of_each
from .merge import Merge
from .reuse import Reuse

SCHEMA = 2  # of the file
CONDITIONS = (
    "model",
    "class",
    "fingerprint",
    "weights",
    "size",
    "steps",
    "guidance",
    "scheduler",
    "batch",
    "loras",
    "vae",
)
LEVERS: dict[str, type[Any]] = {  # names in files
    "downsample": Downsample,
    "layers": DownsampleLayers,
    "merge": Merge,
    "reuse": Reuse,
}
BROKEN = (KeyError, TypeError, AttributeError, OverflowError, ValueError)  # what a file that is no plan may raise


@dataclass(frozen=True)
class Plan:
    """Levers that were measured together. `todome.tune` makes one for a model, a size and a budget.

    Args:
        levers: What is left out: `todome.apply` takes a plan as it takes them.
        conditions: What they were measured with: model, size, steps, guidance, scheduler, LoRAs, VAE.
        evidence: How close to full attention and how fast that was.
    """

    levers: tuple[Any, ...]
    conditions: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    evidence: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.levers, (list, tuple)) or not self.levers:
            raise invalid_value("levers", self.levers, "at least one lever", "Tune the model again: todome tune")
        check_known("conditions", self.conditions, CONDITIONS)
        check_evidence(self.evidence)
        check_size(self.conditions.get("size", (1, 1)))
        object.__setattr__(self, "levers", one_of_each(self.levers))
        object.__setattr__(self, "conditions", FrozenDict(self.conditions))
        object.__setattr__(self, "evidence", FrozenDict(self.evidence))

    @property
    def layers(self) -> Mapping[str, PlannedLayer]:
        """What each layer is set to, where a lever of the plan says it layer by layer."""
        return next((lever.layers for lever in self.levers if hasattr(lever, "layers")), {})

    def within(self, start: float = 0.0, stop: float = 1.0) -> "Plan":
        """The plan with nothing left out of calls before start and after stop, fractions of the steps."""
        narrowed = [narrower(lever, start, stop) if hasattr(lever, "stop") else lever for lever in self.levers]
        return replace(self, levers=tuple(narrowed))

    def __str__(self) -> str:
        reduced = sum(layer.is_reduced for layer in self.layers.values())
        found = {name: self.evidence.get(name) for name in ("psnr", "speedup")}
        told = f", {found['psnr']:.1f} dB to dense, {found['speedup']:.2f}x as fast" if all(found.values()) else ""
        what = f"{reduced} of {len(self.layers)} layers reduced" if self.layers else ", ".join(map(str, self.levers))
        return f"Plan: {what}{told}"

    def as_dict(self) -> dict[str, Any]:
        """The plan as JSON has it."""
        names = {kind: name for name, kind in LEVERS.items()}
        levers = {names[type(lever)]: settings_of(lever) for lever in self.levers}
        return {"todome_plan": SCHEMA, "levers": levers, "conditions": self.conditions, "evidence": self.evidence}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan as JSON, whole or not at all."""
        found = self.as_dict()
        # in a folder of its own: two that write the same plan must not write the same file
        with TemporaryDirectory(prefix=".", suffix=".part", dir=Path(path).parent) as folder:
            unfinished = Path(folder, "plan.json")
            unfinished.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            unfinished.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Plan":
        """Reads a plan that `save` wrote, in this version of todome or an older one."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, RecursionError, ValueError) as error:
            raise not_a_plan(path, f"it cannot be read ({error})") from error
        if not isinstance(found, dict) or "todome_plan" not in found:
            raise not_a_plan(path, "it is something else")
        schema = found.pop("todome_plan")
        read = next((read for known, read in READERS.items() if known == schema), None)
        if read is None:
            raise not_a_plan(path, f"its format is {schema!r:.50}, and this version of todome reads 1 and {SCHEMA}")
        try:
            return read(found)
        except BROKEN as error:
            raise not_a_plan(path, f"a part of it is missing or broken ({error})") from error


def narrower(lever: Any, start: float, stop: float) -> Any:
    return replace(lever, start=max(lever.start, start), stop=min(lever.stop, stop))


def settings_of(lever: Lever) -> dict[str, Any]:
    """The fields of a lever as JSON has them; without those that another one stands for."""
    found = {one.name: getattr(lever, one.name) for one in fields(lever)}  # pyright: ignore[reportArgumentType]
    return {name: plain(value) for name, value in found.items() if value is not None}


def plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: layer._asdict() for name, layer in value.items()}
    return value


def read_2(found: dict[str, Any]) -> Plan:
    check_known("file", found, ("levers", "conditions", "evidence"))
    check_known("levers", found["levers"], LEVERS)
    levers = [lever_of(name, settings) for name, settings in found["levers"].items()]
    return Plan(tuple(levers), found.get("conditions", {}), found.get("evidence", {}))


def lever_of(name: str, settings: Any) -> Lever:
    kind = LEVERS[name]
    check_known(name, settings, [one.name for one in fields(kind)])
    if "layers" in settings:
        settings = {**settings, "layers": {key: PlannedLayer(**layer) for key, layer in settings["layers"].items()}}
    return kind(**settings)


def read_1(found: dict[str, Any]) -> Plan:
    """Schema 1 had two factors for each layer, of which the second held from the fraction `switch` on."""
    check_known("file", found, ("layers", "switch", "start", "stop", "seed", "measured"))
    switch = found["switch"]
    layers = {name: layer_of_1(switch, **layer) for name, layer in found["layers"].items()}
    measured = found.get("measured", {})
    check_evidence(measured)
    conditions = {name: value for name, value in measured.items() if name in CONDITIONS}
    evidence = {name: value for name, value in measured.items() if name not in CONDITIONS}
    lever = DownsampleLayers(layers, **{name: found[name] for name in ("start", "stop", "seed")})
    return Plan((lever,), conditions, evidence)


def layer_of_1(switch: Any, factor: Any, later: Any, tokens: Any, width: Any) -> PlannedLayer:
    if not is_number(switch) or not 0 <= switch <= 1:
        raise invalid_value("switch", switch, "a fraction of the steps from 0 to 1", AGAIN)
    falls = 0 < switch < 1 and factor != later
    pieces = (Piece(switch, factor), Piece(1.0, later)) if falls else (Piece(1.0, factor if switch > 0 else later),)
    return PlannedLayer(pieces, tokens, width)


READERS: dict[Any, Callable[[dict[str, Any]], Plan]] = {1: read_1, SCHEMA: read_2}


def check_known(field: str, given: Any, known: Any) -> None:
    """Refuses what a newer version may have written: to leave it out would draw other pictures."""
    if not isinstance(given, Mapping):
        raise invalid_value(field, given, "names with values", AGAIN)
    for name in given:
        if name not in known:
            raise invalid_value(field, name, ", ".join(known), "Update todome, or make the plan again")


def check_evidence(evidence: Any) -> None:
    """What is read of a plan's evidence is of the kind that is expected; the rest is for people."""
    if not isinstance(evidence, Mapping):
        raise invalid_value("evidence", evidence, "what was measured, by name", AGAIN)
    for name in ("psnr", "speedup"):
        if not is_number(evidence.get(name, 0)):
            raise invalid_value(f"evidence {name}", evidence[name], "a number", AGAIN)


def check_size(size: Any) -> None:
    if not isinstance(size, (list, tuple)) or len(size) != 2 or not all(map(is_count, size)):
        raise invalid_value("size", size, "width and height in pixels", AGAIN)


def not_a_plan(path: Any, why: str) -> ValueError:
    return ValueError(f"{path} is not a plan: {why}. Plans are written by todome tune.")


LeverOrPlan: TypeAlias = Lever | Plan  # what `todome.apply` takes
