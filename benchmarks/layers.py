"""How much each layer bears when it alone is reduced.

    python benchmarks/layers.py --work runs/layers --second run2/pipeline --out benchmarks/results/layers.json

Latents of whole runs are compared with those of full attention, in dB of their own variance, from the same prompts and
noise. The second model is one that was trained for this alone (flowers/train/README.md). The folder of the work keeps
every measurement: a command that was interrupted goes on.
"""

import argparse
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from todome.tools.tuning.layers import fingerprint, tuned_layers
from todome.tools.tuning.records import Records

SIZES = {EMBEDDED: (256, 512), "second": (256,)}
SEED = 30_000
SHAPE = ("block_out_channels", "down_block_types", "transformer_layers_per_block", "layers_per_block")
Row = dict[str, Any]


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
    for level, layer, factor in itertools.product(options.levels, layers.dense, options.factors):
        if layers.levels[layer] == level and factor**2 < layers.dense[layer].tokens:
            plan = layers.plan({layer: (factor, factor)})
            what = {"layers": [layer], "factor": factor}
            db = records.measure(what, lambda plan=plan: latent_decibels(drawings, plan))
            own = {"level": level, "layer": layer, "factor": factor}
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
