"""How much each layer bears: reduced alone, with all of its level, or less than the others of its level.

    python benchmarks/layers.py --work runs/layers --second run2/pipeline --out benchmarks/results/layers.json

Latents of whole runs are compared with those of full attention, in dB of their own variance, from the same prompts and
noise. The second model is one that was trained for this alone (flowers/train/README.md). The folder of the work keeps
every measurement: a command that was interrupted goes on.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from todome import Downsample
from todome.tools.machine import about
from todome.tools.measuring.attention_costs import reduced_levels
from todome.tools.measuring.drawing import PictureMaker
from todome.tools.measuring.evaluation import FLOWERS, plan_for
from todome.tools.measuring.runs import write_json
from todome.tools.measuring.subjects import denoiser_call
from todome.tools.pipelines import EMBEDDED, denoiser, open_pipeline, weights_of
from todome.tools.timing import measuring
from todome.tools.tuning.drawings import CLOSEST, Drawings
from todome.tools.tuning.layers import TunedLayers, fingerprint, tuned_layers
from todome.tools.tuning.records import Records

SIZES = {EMBEDDED: (256, 512), "second": (256,)}
SEED = 30_000
SHAPE = ("block_out_channels", "down_block_types", "transformer_layers_per_block", "layers_per_block")
Row = dict[str, Any]


class Case(NamedTuple):
    """Layers that are reduced: one alone, or all of its level, some of them by half of the factor."""

    level: int
    which: str  # "all", "gentle" or "alone"
    layer: str
    reduced: tuple[str, ...]
    halved: tuple[str, ...] = ()

    def what(self, factor: float) -> Row:
        """How its measurement is called in the records."""
        return {"layers": self.reduced, "factor": factor} | ({"halved": self.halved} if self.halved else {})

    def choices(self, factor: float) -> dict[str, tuple[float, float]]:
        halved = dict.fromkeys(self.halved, (factor / 2, factor / 2))
        return dict.fromkeys(self.reduced, (factor, factor)) | halved


def cases(layers: TunedLayers, levels: list[int]) -> Iterator[Case]:
    for level in levels:
        names = layers.at_level(level)
        yield Case(level, "all", "", tuple(names))
        if first := tuple(name for name in names if name.endswith(".0")):  # after the resolution has changed
            yield Case(level, "gentle", "", tuple(names), first)
        for name in names:
            yield Case(level, "alone", name, (name,))


def rows_of(pipe: Any, name: str, px: int, options: argparse.Namespace) -> Iterator[Row]:
    fewer = max(1, px // 256)
    pictures, batch = max(1, options.pictures // fewer), max(1, options.batch // fewer**2)
    model = options.second if name == "second" else EMBEDDED
    drawn = plan_for(model, FLOWERS, sizes=((px, px),), steps=options.steps, seed=SEED, batch=batch, pictures=pictures)
    drawings = Drawings(PictureMaker(drawn, Path(), pipe), range(pictures), range(0), options.steps)
    with measuring():
        layers = tuned_layers(pipe, reduced_levels(denoiser_call(pipe, (px, px)), Downsample()))
    conditions = {"model": fingerprint(denoiser(pipe)), "px": px, "steps": options.steps, "pictures": pictures}
    records = Records(conditions | weights_of(model), options.work)
    for case in cases(layers, options.levels):
        for factor in options.factors:
            if factor**2 < layers.dense[case.reduced[0]].tokens:
                plan = layers.plan(case.choices(factor))
                db = records.measure(case.what(factor), lambda plan=plan: latent_decibels(drawings, plan))
                own = {"level": case.level, "which": case.which, "layer": case.layer, "factor": factor}
                yield {"model": name, "px": px, **own, "pictures": pictures, "db": round(db, 2)}


def latent_decibels(drawings: Drawings, plan: Any) -> float:
    variance = drawings.dense_latents().var().item()
    ((_, error),) = drawings.latent_errors([plan])
    return -10 * math.log10(max(error / variance, CLOSEST))


def main(sizes: dict[str, tuple[int, ...]] = SIZES) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--second", type=Path, help="the pipeline of the second model")
    parser.add_argument("--work", type=Path, required=True, help="where every measurement is kept")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--factors", type=float, nargs="+", default=(2, 3, 4))
    parser.add_argument("--levels", type=int, nargs="+", default=(1, 2))
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--pictures", type=int, default=16, help="at 256 px")
    parser.add_argument("--batch", type=int, default=16, help="pictures drawn at once, at 256 px")
    options = parser.parse_args()
    models, rows, machine = {}, [], {}
    for name, folder in {EMBEDDED: EMBEDDED, "second": options.second}.items():
        if folder is not None:
            pipe: Any = open_pipeline(str(folder))
            pipe.set_progress_bar_config(disable=True)
            shape = {field: denoiser(pipe).config[field] for field in SHAPE}
            models[name] = {"fingerprint": fingerprint(denoiser(pipe)), "layers": shape}
            machine = {**about(pipe.device, "diffusers"), "dtype": str(pipe.dtype).removeprefix("torch.")}
            rows += [row for px in sizes[name] for row in tqdm(rows_of(pipe, name, px, options), f"{name}, {px} px")]
    facts = {"about": {**machine, **weights_of(EMBEDDED)}, "steps": options.steps, "models": models}
    write_json(options.out, facts | {"rows": rows})


if __name__ == "__main__":
    main()
