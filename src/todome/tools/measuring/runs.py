"""Files of an evaluation: the plan, every picture, the results. Each file is whole or not there.

RUN/run.json                          the plan and the machine, written first
RUN/pictures/512x512/todome_2/00000.png   picture i of a method, from prompt i and seed + i
RUN/times/512x512/todome_2.json       what each batch took
RUN/results.json                      the rows that tables and reports are made from
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import invalid_value
from ..files import atomic_write, inside
from ..pipelines import EMBEDDED, Size, format_size


@dataclass(frozen=True)
class EvaluationPlan:
    """Plan of an evaluation: which pictures are drawn, and how."""

    prompts: Sequence[str]  # picture i is drawn from prompts[i % len(prompts)]
    methods: Sequence[str]  # as they are typed; dense is always the first
    model: str = EMBEDDED
    sizes: Sequence[Size] = ((256, 256),)  # none is the model's own
    pictures: int = 16  # of each method and size
    seed: int = 0  # picture i starts from the noise of seed + i
    steps: int = 25
    guidance: float | None = None
    scheduler: str | None = None
    batch: int = 1
    real: str | None = None  # what FID compares with; None is the dense pictures
    loras: Sequence[str] = field(default_factory=list)  # files, each with its weight: "style.safetensors:0.8"
    vae: str | None = None  # another autoencoder than the model's
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)  # methods for some sizes: {"todo:2": ["512x512"]}

    def prompt(self, i: int) -> str:
        return self.prompts[i % len(self.prompts)]

    def methods_at(self, size: Size) -> list[str]:
        return [method for method in self.methods if format_size(size) in self.only.get(method, [format_size(size)])]


@dataclass(frozen=True)
class Closeness:
    """How close each picture is to the dense one of the same seed; a measure that could not be taken is empty."""

    psnr: Sequence[float] = ()  # dB; 100 for the same picture
    ssim: Sequence[float] = ()
    ms_ssim: Sequence[float] = ()
    lpips: Sequence[float] = ()  # lower is closer
    detail: Sequence[float] = ()  # high-frequency energy over the dense picture's; without pictures that are flat
    mse: Sequence[float] = ()  # lower is closer


@dataclass(frozen=True)
class EvaluationRow:
    """The measurements of one method at one size."""

    size: Size
    method: str
    pictures: int
    steps: int
    seconds: float  # per picture, the whole pipeline
    speedup: float  # over dense at this size
    gigabytes: float | None = None  # of a GPU's memory per picture, at the peak
    fid: float | None = None
    closeness: Closeness = field(default_factory=Closeness)  # of dense: empty

    @property
    def is_dense(self) -> bool:
        return self.method == "dense"


@dataclass(frozen=True)
class Evaluation:
    """A finished or unfinished run, as results.json holds it."""

    plan: EvaluationPlan
    about: Mapping[str, Any]  # the machine, the versions, the date
    rows: Sequence[EvaluationRow]
    folder: Path

    def picture(self, size: Size, method: str, i: int) -> Path:
        return picture_path(self.folder, size, method, i)


def picture_path(folder: Path, size: Size, method: str, i: int) -> Path:
    return inside(folder, f"pictures/{format_size(size)}/{file_name(method)}/{i:05d}.png", "picture")


def times_path(folder: Path, size: Size, method: str) -> Path:
    return inside(folder, f"times/{format_size(size)}/{file_name(method)}.json", "times")


def features_path(folder: Path, size: Size, method: str) -> Path:
    return inside(folder, f"features/{format_size(size)}/{file_name(method)}.safetensors", "features")


def file_name(method: str) -> str:
    """A method's name as that of a file, on any system."""
    return method.replace(":", "_").replace(",", "-").replace("=", "_").replace("/", "-").replace("\\", "-")


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as beside:
        beside.write_text(json.dumps(content, indent=1) + "\n")


def read_plan(found: Mapping[str, Any]) -> EvaluationPlan:
    return EvaluationPlan(**{**found, "sizes": tuple(tuple(size) for size in found["sizes"])})


def read_row(found: Mapping[str, Any]) -> EvaluationRow:
    closeness = Closeness(**{name: tuple(values) for name, values in found["closeness"].items()})
    return EvaluationRow(**{**found, "size": tuple(found["size"]), "closeness": closeness})


def save_results(run: Evaluation) -> None:
    content = {"plan": asdict(run.plan), "about": dict(run.about), "rows": [asdict(row) for row in run.rows]}
    write_json(run.folder / "results.json", content)


def read_results(folder: Path) -> Evaluation:
    """The evaluation in a folder."""
    allowed = "the folder of an evaluation, with a results.json"
    try:
        found = json.loads((folder / "results.json").read_text())
        return Evaluation(read_plan(found["plan"]), found["about"], [read_row(row) for row in found["rows"]], folder)
    except OSError:
        raise invalid_value("run", str(folder), allowed, "Make one with todome eval", FileNotFoundError) from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise invalid_value(
            "run", str(folder), allowed, "This one cannot be read: evaluate again into another folder"
        ) from None
