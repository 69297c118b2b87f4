"""How much each layer bears: reduced alone, left out of a reduction of its level, or reduced less than the others.

    python benchmarks/layers.py --work runs/layers --out benchmarks/results/layers.json
    python benchmarks/layers.py --model run2/pipeline --name second --work runs/layers --out ...layers.json

Latents of whole runs are compared with those of full attention, in dB of their own variance, from the same prompts and
noise. The folder of the work keeps every measurement: a run that was interrupted, or stopped by `--stop-after`, has
written the rows that were done, and goes on. Rows of other models and sizes that the file holds stay.
"""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ancestors import stop_after
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

FACTORS = (2, 3, 4)
WHICH = ("all", "gentle", "alone", "without")
SEED = 30_000
Row = dict[str, Any]


class Case(NamedTuple):
    """Layers that are reduced: one alone, all of its level, or all but that one; some of them by half of the factor."""

    level: int
    which: str  # one of WHICH
    layer: str
    reduced: tuple[str, ...]
    halved: tuple[str, ...] = ()

    def what(self, factor: float) -> dict[str, Any]:
        """How its measurement is called in the records."""
        return {"layers": self.reduced, "factor": factor} | ({"halved": self.halved} if self.halved else {})

    def choices(self, factor: float) -> dict[str, tuple[float, float]]:
        halved = dict.fromkeys(self.halved, (factor / 2, factor / 2))
        return dict.fromkeys(self.reduced, (factor, factor)) | halved


def cases(layers: TunedLayers) -> list[Case]:
    found = []
    for level in sorted(set(layers.levels.values())):
        names = layers.at_level(level)
        found.append(Case(level, "all", "", tuple(names)))
        if first := tuple(name for name in names if name.endswith(".0")):  # after the resolution has changed
            found.append(Case(level, "gentle", "", tuple(names), first))
        for name in names:
            found.append(Case(level, "alone", name, (name,)))
            if len(names) > 1:
                found.append(Case(level, "without", name, tuple(other for other in names if other != name)))
    return found


def rows_of(pipe: Any, px: int, options: argparse.Namespace) -> Iterator[Row]:
    fewer = max(1, px // 256)
    pictures, batch = max(1, options.pictures // fewer), max(1, options.batch // fewer**2)
    drawn = plan_for(
        options.model, FLOWERS, sizes=((px, px),), steps=options.steps, seed=SEED, batch=batch, pictures=pictures
    )
    drawings = Drawings(PictureMaker(drawn, Path(), pipe), range(pictures), range(0), options.steps)
    with measuring():
        layers = tuned_layers(pipe, reduced_levels(denoiser_call(pipe, (px, px)), Downsample()))
    conditions = {"model": fingerprint(denoiser(pipe)), "px": px, "steps": options.steps, "pictures": pictures}
    records = Records(conditions | weights_of(options.model), options.work)
    for case in cases(layers):
        for factor in options.factors:
            wanted = case.level in options.levels and case.which in options.which
            if wanted and factor**2 < layers.dense[case.reduced[0]].tokens:
                plan = layers.plan(case.choices(factor))
                db = records.measure(case.what(factor), lambda plan=plan: latent_decibels(drawings, plan))
                own = {"level": case.level, "which": case.which, "layer": case.layer, "factor": factor}
                yield {"model": options.name, "px": px, **own, "pictures": pictures, "db": round(db, 2)}


def latent_decibels(drawings: Drawings, plan: Any) -> float:
    variance = drawings.dense_latents().var().item()
    ((_, error),) = drawings.latent_errors([plan])
    return -10 * math.log10(max(error / variance, CLOSEST))


def key_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("model", "px", "level", "which", "layer", "factor"))


def results_so_far(out: Path) -> Row:
    """What the file holds, unless it was made with other weights of the embedded model."""
    found = json.loads(out.read_text()) if out.exists() else {}
    return found if weights_of(EMBEDDED).items() <= found.get("about", {}).items() else {"models": {}, "rows": []}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=EMBEDDED, help="the embedded one, or the folder of a pipeline")
    parser.add_argument("--name", default=EMBEDDED, help="what the results call it")
    parser.add_argument("--work", type=Path, required=True, help="where every measurement is kept")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=(256, 512))
    parser.add_argument("--factors", type=float, nargs="+", default=FACTORS)
    parser.add_argument("--levels", type=int, nargs="+", default=(1, 2))
    parser.add_argument("--which", nargs="+", choices=WHICH, default=WHICH)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--pictures", type=int, default=16, help="at 256 px")
    parser.add_argument("--batch", type=int, default=16, help="pictures drawn at once, at 256 px")
    parser.add_argument("--stop-after", type=int, default=0, help="seconds")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    pipe = open_pipeline(options.model, options.device)
    pipe.set_progress_bar_config(disable=True)
    found = results_so_far(options.out)
    precision = {"dtype": str(pipe.dtype).removeprefix("torch.")}
    found |= {"about": {**about(pipe.device, "diffusers"), **precision, **weights_of(EMBEDDED)}, "steps": options.steps}
    found["models"][options.name] = {"fingerprint": fingerprint(denoiser(pipe)), "layers": describe(pipe)}
    stop_after(options.stop_after)
    try:
        for px in options.sizes:
            for row in rows_of(pipe, px, options):
                found["rows"] = [other for other in found["rows"] if key_of(other) != key_of(row)] + [row]
                write_json(options.out, found)
                tqdm.write(" ".join(map(str, row.values())))
    except KeyboardInterrupt:
        print("Stopped. The same command goes on.")


def describe(pipe: Any) -> dict[str, Any]:
    config = denoiser(pipe).config
    names = ("block_out_channels", "down_block_types", "transformer_layers_per_block", "layers_per_block")
    return {name: config[name] for name in names}


if __name__ == "__main__":
    main()
