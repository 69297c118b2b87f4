"""Plans for a CPU, at sizes at which it would draw for half a day or more: its times, and the pictures of a GPU.

    python benchmarks/cpu_plans.py time --work WORK      # on the CPU: what each level costs there
    python benchmarks/cpu_plans.py draw --work WORK      # on a GPU: the search, with the times of the CPU
    python benchmarks/cpu_plans.py finish --work WORK --plans flowers/src/todome_flowers/plans/cpu    # on the CPU

The search is that of `todome tune`, which lets a cluster draw in the same way. A plan says where it was timed and where
it was drawn. The folder of the work is carried from one machine to the other; single layers that `tuning.py` measured
on the GPU in that folder are not measured again.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from tuning import add_drawing_options, tuner_of

from todome import Downsample, Plan
from todome.tools.machine import about
from todome.tools.measuring.attention_costs import LevelCost, reduced_levels
from todome.tools.measuring.runs import write_json
from todome.tools.measuring.subjects import DenoiserCall, denoiser_call
from todome.tools.pipelines import EMBEDDED, open_pipeline
from todome.tools.timing import measuring
from todome.tools.tuning.control import Control, draw_control
from todome.tools.tuning.goal import Goal
from todome.tools.tuning.layer_times import layer_times, time_levels, time_plan
from todome.tools.tuning.layers import Choices, tuned_layers
from todome.tools.tuning.search import Search, Trial
from todome.tools.tuning.sensitivity import Sensitivity
from todome.tools.tuning.tuner import Tuner, measured_of


def call_and_levels(pipe: Any, px: int) -> tuple[DenoiserCall, list[LevelCost]]:
    call = denoiser_call(pipe, (px, px))
    return call, reduced_levels(call, Downsample())


def time_part(pipe: Any, px: int, options: argparse.Namespace) -> None:
    """Writes what each level saves at each factor."""
    with measuring():
        found = time_levels(*call_and_levels(pipe, px), options.patience)
    write_json(options.work / f"times-{px}.json", {"about": about(pipe.device, "diffusers"), "found": found})


def draw_part(pipe: Any, px: int, options: argparse.Namespace) -> None:
    """Writes the plan that the search finds, with the errors of its pictures and of dense runs of about its time."""
    tuner = tuner_of(pipe, px, argparse.Namespace(**{**vars(options), "work": own_records(options.work, px)}))
    with measuring():
        layers = tuned_layers(pipe, call_and_levels(pipe, px)[1])
    times = layer_times(json.loads((options.work / f"times-{px}.json").read_text())["found"], layers)

    def expected(plan: Plan) -> dict[str, float]:
        return {"speedup": times.speedup(layers, choices_of(plan)), "noise": times.noise}

    search = Search(layers, times, Sensitivity(), tuner.drawings, tuner.records, expected)
    tuner.measure_layers(search)
    best = search.run(Goal(options.keep), lambda: True)
    tuner.bar.close()
    if best is None:
        raise SystemExit(f"At {px} px no plan keeps {options.keep:g} dB.")
    faster = expected(layers.plan(best.choices))["speedup"]
    drawn = {name: value for name, value in tuner.about().items() if name in ("gpu", "cuda", "dtype", "versions")}
    found = {"errors": best.errors, "controls": controls(tuner, faster), "share": tuner.share(search), "drawn": drawn}
    layers.plan(best.choices, **found).save(options.work / f"drawn-{px}-{options.keep:g}.json")
    print(f"{px} px: {best.errors}, expected {faster:.2f}x")


def own_records(work: Path, px: int) -> Path:
    """A copy of what `tuning.py` measured: the speeds that are expected of a CPU are no measurements of the GPU."""
    if (work / str(px)).is_dir() and not (work / "cpu" / str(px)).exists():
        shutil.copytree(work / str(px), work / "cpu" / str(px))
    return work / "cpu"


def controls(tuner: Tuner, speedup: float) -> list[Control]:
    """Dense runs of about as many steps as take the time of a plan: its measured speed may be a little another."""
    whole = tuner.maker.plan.steps
    near = {whole / (round(whole / speedup) + more) for more in (-1, 0, 1) if round(whole / speedup) + more > 0}
    found = [draw_control(tuner.drawings, tuner.records, one) for one in sorted(near)]
    return [one for one in found if one is not None]


def finish_part(pipe: Any, px: int, options: argparse.Namespace) -> None:
    """Times the plan that was drawn, and writes it as `todome tune` would."""
    drawn = Plan.load(options.work / f"drawn-{px}-{options.keep:g}.json")
    tuner = tuner_of(pipe, px, argparse.Namespace(**{**vars(options), "batch": 1}))
    tuner.goal = Goal(options.keep)
    with measuring():
        speed = time_plan(call_and_levels(pipe, px)[0], drawn, options.patience)
    trial = Trial(choices_of(drawn), drawn.measured["errors"], **speed)
    steps = round(tuner.maker.plan.steps / trial.speedup)
    control = next((Control(*one) for one in drawn.measured["controls"] if one[0] == steps), None)
    found = {**measured_of(trial, control, trial.noise), **{name: drawn.measured[name] for name in ("share", "drawn")}}
    plan = Plan(drawn.layers, switch=drawn.switch, measured={**tuner.about(), **found})
    options.plans.mkdir(parents=True, exist_ok=True)
    plan.save(options.plans / f"{px}-{options.keep:g}.json")
    print(f"{px} px: {plan.measured['verdict']}")


def choices_of(plan: Plan) -> Choices:
    return {name: (layer.factor, layer.later) for name, layer in plan.layers.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"time": time_part, "draw": draw_part, "finish": finish_part}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--work", type=Path, required=True, help="what is carried between the machines")
    parser.add_argument("--plans", type=Path, default=Path(), help="where finished plans go")
    parser.add_argument("--sizes", type=int, nargs="+", default=(512, 768))
    parser.add_argument("--keep", type=float, default=45, help="dB")
    add_drawing_options(parser)
    parser.add_argument("--patience", type=float, default=30, help="seconds of each timing")
    options = parser.parse_args()
    pipe = open_pipeline(EMBEDDED, options.device)
    pipe.set_progress_bar_config(disable=True)
    for px in options.sizes:
        parts[options.part](pipe, px, options)


if __name__ == "__main__":
    main()
