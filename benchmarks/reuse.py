"""How close reuse over steps is to the dense picture, beside its controls at equal work, on the embedded model.

    python benchmarks/reuse.py --out benchmarks/results/reuse.json --pictures 4

Run it in the root of the repository. For each scheduler of the standard set it draws dense pictures, the same with
`Reuse(keep=...)`, and two controls with as many calls of the model: evenly fewer steps, and late steps (the same first
steps, then every second one). An interrupted run goes on: what is in the file is not drawn again. Work is in calls of
the model, as the shares of SD 1.5 and of SDXL at 1024 px say (`todome.steps.costs`), not in seconds.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import todome_flowers
import torch
from torch import Tensor
from tqdm import tqdm

import todome
from todome.steps import costs
from todome.tools.machine import about
from todome.tools.measuring.runs import write_json
from todome.tools.pipelines import open_pipeline
from todome.tools.schedulers import make_scheduler

PROMPTS = (
    *("a red tulip, close-up", "a photo of a daisy", "pink roses", "a field of yellow tulips"),
    *("a photo of a sunflower", "white dandelion", "a photo of a rose", "purple tulips, close-up"),
)
SHAPES = {"SD 1.5": "attention", "SDXL": "convolutions"}  # whose shares of a call schedules are found for


class Case(NamedTuple):
    """One line of the standard set."""

    scheduler: str
    steps: int
    guidance: float
    size: int = 256
    karras: bool = False

    @property
    def name(self) -> str:
        kind = self.scheduler + " Karras" * self.karras
        return f"{kind}, {self.steps} steps, guidance {self.guidance:g}, {self.size} px"


CASES = (
    Case("dpm++", 25, 5),
    Case("dpm++", 25, 7.5),
    Case("dpm++", 20, 7, karras=True),
    Case("dpm++", 30, 7, karras=True),
    Case("euler", 20, 5),
    Case("euler", 30, 5),
    Case("euler-a", 25, 5),
    Case("ddim", 50, 5),
    Case("unipc", 20, 5),
    Case("dpm++", 25, 5, 512),
    Case("euler", 30, 5, 512),
)


class Bench:
    """A pipeline, and the dense pictures that others are compared with."""

    def __init__(self, pipe: Any, pictures: int) -> None:
        self.pipe, self.pictures, self.config = pipe, pictures, dict(pipe.scheduler.config)

    def use(self, case: Case) -> None:
        self.pipe.scheduler = make_scheduler(case.scheduler, {**self.config, "use_karras_sigmas": case.karras})

    def draw(self, case: Case, steps: int | None = None, then: Callable[[], None] = lambda: None) -> list[Tensor]:
        """Pictures; `then` is called after each of them."""
        drawn = []
        for number in range(self.pictures):
            drawn.append(self.picture(case, number, steps or case.steps))
            then()
        return drawn

    def picture(self, case: Case, number: int, steps: int) -> Tensor:
        settings: dict[str, Any] = {"num_inference_steps": steps, "guidance_scale": case.guidance}
        noise = torch.Generator().manual_seed(number)
        size = {"height": case.size, "width": case.size}
        return self.pipe(PROMPTS[number % len(PROMPTS)], generator=noise, output_type="pt", **size, **settings).images


@contextmanager
def only_steps(scheduler: Any, places: list[int]) -> Iterator[None]:
    """A scheduler whose schedule has these places alone."""
    whole = scheduler.set_timesteps

    def set_timesteps(*args: Any, **kwargs: Any) -> None:
        whole(*args, **kwargs)
        scheduler.sigmas = torch.cat([scheduler.sigmas[places], scheduler.sigmas[-1:]])
        scheduler.timesteps = scheduler.timesteps[places]
        scheduler.num_inference_steps = len(places)

    scheduler.set_timesteps = set_timesteps
    try:
        yield
    finally:
        del scheduler.set_timesteps


def late_places(steps: int, calls: int) -> list[int]:
    """The first steps, then every second one: so many in all."""
    settled = max(0, min(steps, 2 * calls - steps))
    return [*range(settled), *range(settled, steps, 2)]


def db(picture: Tensor, dense: Tensor) -> float:
    return min(100.0, float(-10 * torch.log10((picture - dense).square().mean().clamp_min(1e-10))))


def summary(values: list[float]) -> dict[str, Any]:
    """The statistic of the project: the mean of the dB of pictures, its 10 % quantile, how many there are."""
    lowest = float(torch.tensor(values).quantile(0.1))
    each = [round(value, 2) for value in values]
    return {"each": each, "db": round(fmean(values), 2), "p10": round(lowest, 2), "pictures": len(values)}


@contextmanager
def shares_of(shape: str, patch: todome.Patch) -> Iterator[None]:
    """A patch that finds its schedules for the costs of another model at 1024 px."""
    for state in patch._places[0].states:
        own = costs.unet_shares(SHAPES[shape], (128, 128), 1)
        state.shares = lambda guided, *_, own=own: {k: v for k, v in own.items() if guided or k in "DSTo"}
    yield


def measure(bench: Bench, case: Case, keeps: list[float], shapes: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of one case."""
    bench.use(case)
    dense = bench.draw(case)
    compare = lambda pictures: summary([db(one, other) for one, other in zip(pictures, dense, strict=True)])  # noqa: E731
    for shape in shapes:
        for keep in keeps:
            with todome.apply(bench.pipe, todome.Reuse(keep=keep)) as patch, shares_of(shape, patch):
                state, reports = patch._places[0].states[0], []
                found = compare(bench.draw(case, then=lambda: reports.append(state.report)))  # noqa: B023
            schedule = reports[0].schedule
            told = {"word": schedule.word, "work": round(schedule.cost, 3), "expected": round(schedule.keeps, 1)}
            told["estimates"] = [round(report.estimate, 1) for report in reports]
            told["bends"] = bends(reports)
            yield {"method": f"keep={keep:g}", "shape": shape, **told, **found}
            if keep == keeps[0]:
                yield from controls(bench, case, shape, schedule.cost, compare)


def bends(reports: list[Any]) -> list[tuple[float, float]]:
    """The squared error of the predicted picture over that of the error term, by noise level, of all pictures."""
    checks = [[(sigma, wrong, float(error)) for sigma, wrong, error in report.checks] for report in reports]
    return [
        (round(step[0][0], 4), float(f"{fmean(error / wrong**2 for _, wrong, error in step):.4g}"))
        for step in zip(*checks, strict=True)
    ]


def controls(
    bench: Bench, case: Case, shape: str, work: float, compare: Callable[..., Any]
) -> Iterator[dict[str, Any]]:
    calls = max(1, math.ceil(work * case.steps))
    yield {"method": "fewer steps", "shape": shape, "work": calls / case.steps, **compare(bench.draw(case, calls))}
    if hasattr(bench.pipe.scheduler, "sigmas"):
        places = late_places(case.steps, calls)
        with only_steps(bench.pipe.scheduler, places):
            yield {
                "method": "late steps",
                "shape": shape,
                "work": len(places) / case.steps,
                **compare(bench.draw(case)),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the file of the results")
    parser.add_argument("--pictures", type=int, default=4)
    parser.add_argument("--keep", type=float, nargs="+", default=[45, 40])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=[*SHAPES], help="whose costs schedules suit")
    parser.add_argument("--cases", type=int, nargs="*", help="numbers of the cases; all where it is left out")
    options = parser.parse_args()
    known = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    pipe = open_pipeline()
    pipe.set_progress_bar_config(disable=True)
    bench, rows = Bench(pipe, options.pictures), list(known)
    head = {"about": about(pipe.device, "diffusers"), "command": " ".join(["benchmarks/reuse.py", *sys.argv[1:]])}
    head |= {"weights": todome_flowers.fingerprint()}
    wanted = [case for number, case in enumerate(CASES) if not options.cases or number in options.cases]
    for case in tqdm(wanted, unit="case"):
        if not any(row["case"] == case.name for row in known):
            rows += [{"case": case.name, **row} for row in measure(bench, case, options.keep, options.shapes)]
            write_json(options.out, {**head, "rows": rows})


if __name__ == "__main__":
    main()
