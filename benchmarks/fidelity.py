"""How close reduced pictures are to the dense ones, on the embedded model: `todome eval` under several conditions.

    python benchmarks/fidelity.py --work runs --out benchmarks/results/fidelity.json

Every method draws the same pictures from the same noise as the dense model. The control is the dense model with fewer
steps, which anyone can have: a reduction must be closer at the same speed. The folders of the runs hold every picture:
a command that was interrupted goes on. `seconds` is the time of all pictures. FID is in `ancestors.py`.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from tables import MAIN

from todome.tools.measuring.evaluation import carry_out, plan_for
from todome.tools.measuring.runs import Evaluation, write_json
from todome.tools.measuring.tables import mean, worst

NAMES = {  # of the methods, in the tables
    "tomesd:0.25": "tomesd 0.25",
    "tomesd:0.5": "tomesd 0.5",
    "tomesd:0.75": "tomesd 0.75",
    "tome:0.5": "Merge 0.5",
    "todo:2": "fixed 2 (ToDo)",
    "todo:2,stop=0.6": "fixed 2, stop 0.6 (ToDo)",
    "todo:4": "fixed 4 (ToDo)",
    "todo:1.5": "fixed 1.5 (ToDo)",
    "todo:2,2": "fixed 2+2 (ToDo)",
    "todome:2,phase=random": "random 2",
    "todome:1.5": "dither 1.5",
    "todome:2": "dither 2",
    "todome:3": "dither 3",
    "todome:4": "dither 4",
    "todome:2,stop=0.8": "dither 2, stop 0.8",
    "todome:4,stop=0.8": "dither 4, stop 0.8",
    "todome:2,2": "dither 2+2",
    "todome:4,2": "dither 4+2",
}
MAIN_METHODS = [method for method, name in NAMES.items() if name in MAIN]
SEED = 10_000


class Condition(NamedTuple):
    """What one evaluation draws."""

    px: int
    scheduler: str
    steps: int
    methods: list[str]
    share: float = 1.0  # of the pictures: one of 512 px costs ten times as much


CONDITIONS = [
    Condition(256, "dpm++", 25, [*NAMES, "dense:22", "dense:20", "dense:17", "dense:13"]),
    Condition(256, "ddim", 25, MAIN_METHODS),
    Condition(256, "euler-a", 25, MAIN_METHODS),
    Condition(256, "dpm++", 10, MAIN_METHODS),
    Condition(512, "dpm++", 25, [*MAIN_METHODS, "dense:17", "dense:13"], share=0.32),
    Condition(256, "dpm++", 50, MAIN_METHODS),
]


def rows_of(run: Evaluation, condition: Condition) -> list[dict[str, Any]]:
    """The rows of an evaluation as `tables.py` reads them."""
    common = {"px": condition.px, "scheduler": condition.scheduler, "steps": condition.steps}
    found = []
    for row in run.rows:
        close = row.closeness
        means = {"psnr": close.psnr, "ssim": close.ssim, "lpips": close.lpips, "high_frequency": close.detail}
        values = {name: mean(values) for name, values in means.items()} | {"psnr_worst": worst(close.psnr)}
        facts = {"method": NAMES.get(row.method, "dense"), "pictures": row.pictures, "taken": row.steps}
        facts["seconds"] = row.seconds * row.pictures
        found.append({**common, **facts, **{name: value and round(value, 4) for name, value in values.items()}})
    return found


def evaluate_condition(condition: Condition, options: argparse.Namespace) -> Evaluation:
    plan = plan_for(
        methods=condition.methods,
        sizes=((condition.px, condition.px),),
        scheduler=condition.scheduler,
        steps=condition.steps,
        pictures=max(1, round(condition.share * options.pictures)),
        batch=options.batch,
        seed=SEED,
    )
    name = f"{condition.px}-{condition.scheduler}-{condition.steps}"
    return carry_out(plan, options.work / name, lpips=options.lpips)


def main(conditions: list[Condition] = CONDITIONS) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="where the runs and their pictures go")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pictures", type=int, default=200, help="of each method at 256 px")
    parser.add_argument("--batch", type=int, default=32, help="pictures drawn at once")
    parser.add_argument("--lpips", type=Path, help="weights, where no package has them")
    options = parser.parse_args()
    runs = [evaluate_condition(condition, options) for condition in conditions]
    rows = [row for run, condition in zip(runs, conditions, strict=True) for row in rows_of(run, condition)]
    first = runs[0]
    about = {"about": dict(first.about), "guidance": first.plan.guidance, "prompts": first.plan.prompts}
    write_json(options.out, about | {"rows": rows})


if __name__ == "__main__":
    main()
