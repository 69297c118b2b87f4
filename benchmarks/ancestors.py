"""The tables that made ToMe and ToDo known, on the embedded model, with todome's rows next to theirs: `todome eval`.

    python benchmarks/ancestors.py --work runs --out benchmarks/results/ancestors.json --lpips lpips.safetensors \
        --inception inception.safetensors --real features.safetensors --prompts prompts.txt

ToMe's table is FID, seconds and memory with 0 to 60 % merged, 50 steps of PLMS at 256 px. ToDo's is closeness and
throughput at the numbers of tokens that SD has at 1024, 1536 and 2048 px, here 512, 768 and 1024; with the control of
fewer dense steps. The folders of the runs hold every picture: a command that was interrupted goes on.
"""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from todome.tools.measuring.evaluation import carry_out, plan_for
from todome.tools.measuring.runs import Evaluation, EvaluationRow, write_json
from todome.tools.measuring.tables import TABLES, mean, worst
from todome.tools.pipelines import EMBEDDED

LARGEST = ("lpips", "mse")  # the worst are the largest
CONTROLS = {512: (20, 17, 13), 768: (17, 13, 9), 1024: (13, 9, 6)}  # steps: about as fast as the others are


def plans(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The fields of every plan. Larger pictures take longer, so there are fewer of them."""
    lines = options.prompts.read_text().splitlines() if options.prompts else None
    tome = {"prompts": lines, "pictures": options.pictures, "batch": 256, "real": options.real and str(options.real)}
    rows = TABLES["tome"].fields(EMBEDDED, None)
    methods = ["todome:2", "todome:4", *(name for name in rows["methods"][::-1] if name.startswith("tome:"))]
    found = {"tome": {**rows, "methods": methods, **tome}}
    for side, fewer, batch in ((512, 1, 32), (768, 4, 8), (1024, 8, 4)):
        fields = TABLES["todo"].fields(EMBEDDED, [(side, side)])
        methods = [*fields["methods"], *(f"dense:{steps}" for steps in CONTROLS[side])]
        own = {"methods": methods, "pictures": max(1, options.todo // fewer), "batch": batch}
        found[f"todo-{side}"] = fields | own
    return found


def summary(run: Evaluation) -> dict[str, Any]:
    """A run without the values of single pictures."""
    plan = {**asdict(run.plan), "prompts": len(run.plan.prompts), "model": Path(run.plan.model).name}
    plan |= {"real": run.plan.real and Path(run.plan.real).name}
    return {"about": dict(run.about), "plan": plan, "rows": [summed(row) for row in run.rows]}


def summed(row: EvaluationRow) -> dict[str, Any]:
    values = {name: found for name, found in asdict(row.closeness).items() if found}
    means = {name: round(mean(found) or 0, 6) for name, found in values.items()}
    judged = {name: found for name, found in values.items() if name != "detail"}  # too much is as bad as too little
    tails = {f"{name}_worst": round(worst(found, largest=name in LARGEST) or 0, 6) for name, found in judged.items()}
    return {**asdict(row), "closeness": means | tails}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="where the runs and their pictures go")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lpips", type=Path)
    parser.add_argument("--inception", type=Path)
    parser.add_argument("--real", type=Path, help="photos, or their features")
    parser.add_argument("--prompts", type=Path, help="of ToMe's table, one a line")
    parser.add_argument("--pictures", type=int, default=2048, help="of each row of ToMe's table")
    parser.add_argument("--todo", type=int, default=64, help="of each row of ToDo's table, at 512 px")
    options = parser.parse_args()
    done = {}
    for name, fields in plans(options).items():
        fid = name == "tome" and options.inception is not None
        judges = {"fid": fid, "lpips": options.lpips, "inception": options.inception}
        done[name] = summary(carry_out(plan_for(**fields), options.work / name, **judges))
    write_json(options.out, done)


if __name__ == "__main__":
    main()
