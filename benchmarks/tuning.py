"""Plans of `todome tune` against uniform factors and against fewer dense steps, on the embedded model.

    python benchmarks/tuning.py --work benchmarks/results/tuning-h200 --out benchmarks/results/tuning-h200.json \
        --plans plans

For every size a plan is tuned to each budget; the uniform factors and the dense runs of fewer steps are drawn from the
same held-out prompts and noise, and timed in the same way: a step's own time, on a GPU that of a captured graph. Fewer
steps are as much faster as they are fewer. The folder of the work keeps every measurement: a command that was
interrupted goes on.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from todome import Downsample, Plan
from todome.levers.lever import setting_at
from todome.tools.machine import about
from todome.tools.measuring.attention_costs import reduced_levels, step_times
from todome.tools.measuring.drawing import PictureMaker
from todome.tools.measuring.evaluation import plan_for
from todome.tools.measuring.runs import write_json
from todome.tools.pipelines import EMBEDDED, open_pipeline, weights_of
from todome.tools.timing import measuring
from todome.tools.tuning.drawings import closeness
from todome.tools.tuning.goal import Goal
from todome.tools.tuning.layer_times import TIMING, is_worth_trying, preparation
from todome.tools.tuning.layers import SWITCH
from todome.tools.tuning.options import Options
from todome.tools.tuning.progress import Progress
from todome.tools.tuning.tuner import Tuner

SIZES, BUDGETS = (256, 512, 768), (35, 40, 45, 50)
UNIFORM = ((1.5,), (2,), (3,), (4,), (2, 2), (4, 2), (4, 4), (6, 2), (6, 4))  # factors of levels 1 and 2
CONTROLS = (22, 20, 17, 15, 13)  # steps
OF_A_PLAN = ("psnr", "worst", "low", "high", "pictures", "speedup", "noise", "share", "verdict")
SEED = 20_000
Row = dict[str, Any]


def tuner_of(pipe: Any, px: int, options: argparse.Namespace) -> Tuner:
    """A tuner whose measurements are kept for all budgets. Larger pictures take longer, so there are fewer of them."""
    fewer = max(1, px // 256)
    calibration, held_out = max(1, options.calibration // fewer), max(2, options.held_out // fewer)
    batch = max(1, options.batch // fewer**2)
    drawn = plan_for(
        sizes=((px, px),), steps=options.steps, seed=SEED, batch=batch, pictures=calibration + held_out, methods=()
    )
    maker = PictureMaker(drawn, Path(), pipe)
    bar, effort = Progress(None, shown=True), Options(timing=replace(TIMING, patience=options.patience))
    return Tuner(pipe, maker, Goal(BUDGETS[0]), calibration, options.work / str(px), bar, options=effort)


def rows_of(
    tuner: Tuner, px: int, options: argparse.Namespace, uniform: Sequence[Any], controls: Sequence[int]
) -> Iterator[Row]:
    for keep in options.budgets:
        tuned(tuner, keep)
    for keep in options.budgets:  # again, when all are drawn: a plan of one budget may be the best for another
        yield plan_row(px, keep, tuned(tuner, keep), options.plans)
    with measuring():
        grid = max(level.grid for level in reduced_levels(tuner.call, Downsample()))
    for factors in (one for one in uniform if is_worth_trying(one[0], grid)):
        yield uniform_row(tuner, px, factors)
    for steps in sorted({round(tuner.maker.plan.steps * one / 25) for one in controls}, reverse=True):
        what = {"picture errors, dense steps": steps}
        errors = tuner.records.measure(what, lambda steps=steps: tuner.drawings.picture_errors(None, steps))
        faster = round(tuner.maker.plan.steps / steps, 3)
        yield {"px": px, "kind": "steps", "name": f"{steps} steps", "speedup": faster, **closeness(errors)}


def tuned(tuner: Tuner, keep: float) -> Plan:
    tuner.goal = Goal(keep)
    return tuner.run()


def plan_row(px: int, keep: float, plan: Plan, folder: Path | None) -> Row:
    if folder is not None and "psnr" in plan.evidence:
        folder.mkdir(parents=True, exist_ok=True)
        plan.save(folder / f"{px}-{keep:g}.json")
    halves = {name: [setting_at(layer.pieces, at) for at in (0, SWITCH)] for name, layer in plan.layers.items()}
    found = {name: plan.evidence[name] for name in OF_A_PLAN if name in plan.evidence}
    return {"px": px, "kind": "plan", "name": f"{keep:g} dB", "keep": keep, **found, "layers": halves}


def uniform_row(tuner: Tuner, px: int, factors: tuple[float, ...]) -> Row:
    """The same factors in every layer of a level."""
    name, reduction = ", ".join(map(str, factors)), Downsample(factors)
    errors = tuner.records.measure({"picture errors, uniform": name}, lambda: tuner.drawings.picture_errors(reduction))

    def speedup() -> float:
        with measuring():
            found = step_times(tuner.call, [reduction], preparation(tuner.call), tuner.timing)
        return found.speedups[reduction]

    faster = round(tuner.records.measure({"speed-up, uniform": name}, speedup), 3)
    return {"px": px, "kind": "uniform", "name": name, "speedup": faster, **closeness(errors)}


def main(uniform: Sequence[Any] = UNIFORM, controls: Sequence[int] = CONTROLS) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="where every measurement is kept")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plans", type=Path, help="a folder for the plans themselves")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--budgets", type=float, nargs="+", default=BUDGETS, help="dB")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--calibration", type=int, default=12, help="pictures to measure layers with, at 256 px")
    parser.add_argument("--held-out", type=int, default=32, help="pictures to measure plans with, at 256 px")
    parser.add_argument("--batch", type=int, default=16, help="pictures drawn at once, at 256 px")
    parser.add_argument("--patience", type=float, default=1.5, help="seconds of each timing")
    options = parser.parse_args()
    pipe = open_pipeline(EMBEDDED)
    pipe.set_progress_bar_config(disable=True)
    tuners = {px: tuner_of(pipe, px, options) for px in options.sizes}
    rows = [row for px, tuner in tuners.items() for row in tqdm(rows_of(tuner, px, options, uniform, controls))]
    precision = {"dtype": str(pipe.dtype).removeprefix("torch.")}
    machine = {**about(pipe.device, "diffusers"), **precision, **weights_of(EMBEDDED)}
    write_json(options.out, {"about": machine, "steps": options.steps, "rows": rows})


if __name__ == "__main__":
    main()
