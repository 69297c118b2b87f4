"""How close plans that ship are on pictures that did not choose them, beside factor 2 in every layer of level 1.

    python benchmarks/other_pictures.py --work WORK --out benchmarks/results/other-pictures.json

Run it in the root of the repository. An interrupted run goes on. On two cores it takes a quarter of an hour.
"""

import argparse
from pathlib import Path
from typing import Any

from todome import Plan, evaluate
from todome.tools.measuring.methods import method_named
from todome.tools.measuring.runs import EvaluationRow, write_json
from todome.tools.tuning.drawings import closeness

PLANS = Path("flowers/src/todome_flowers/plans")
METHODS = (*(f"todome:plan={PLANS / name}" for name in ("h200/256-45.json", "cpu/256-45.json")), "todome:2")
SEED = 50_000  # far from the seeds of every tuning


def row_of(row: EvaluationRow) -> dict[str, Any]:
    """dB of the mean error, as plans say it, here and on the pictures that chose the plan."""
    found = {"method": row.method, **closeness([10 ** (-psnr / 10) for psnr in row.closeness.psnr])}
    file = method_named(row.method).plan
    return found if file is None else found | {"chosen_with": Plan.load(file).evidence["psnr"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder of the evaluation")
    parser.add_argument("--out", type=Path, required=True, help="the file of the results")
    parser.add_argument("--pictures", type=int, default=10)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    drawn = {"pictures": options.pictures, "seed": SEED, "steps": options.steps, "batch": 2}
    run = evaluate(methods=METHODS, sizes=((options.size,) * 2,), out=options.work, device=options.device, **drawn)
    rows = [row_of(row) for row in run.rows if not row.is_dense]
    write_json(options.out, {"about": run.about, "size": options.size, **drawn, "rows": rows})
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
