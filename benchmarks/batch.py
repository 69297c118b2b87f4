"""What many workers gain, and what an engine costs: a plain loop, `todome batch` here, and Ray with 1 and 2 workers.

    python benchmarks/batch.py --out benchmarks/results/batch.json

On a machine that does nothing else. The pictures are those of the embedded model, one thread for each worker, so that
two workers on two cores can be twice as fast.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from timeit import timeit
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import torch

from todome.tools.batch.jobs import Job, jobs_from
from todome.tools.batch.run import run_batch
from todome.tools.engines.here import Here
from todome.tools.engines.on_ray import LOCAL, OnRay
from todome.tools.generate import make_picture, open_for
from todome.tools.machine import about
from todome.tools.measuring.runs import write_json
from todome.tools.pictures import write_png
from todome.tools.settings import Settings, recommended_settings


def jobs_for(count: int, base: Settings) -> dict[str, Job]:
    return jobs_from({i: {"prompt": "a red tulip", "seed": i} for i in range(count)}, base)


def plain_loop(jobs: dict[str, Job], out: Path) -> None:
    """What a user would write."""
    pipe = open_for(next(iter(jobs.values())).settings)
    pipe.set_progress_bar_config(disable=True)
    out.mkdir()
    for key, job in jobs.items():
        made = make_picture(job.settings, pipe)
        write_png(made.picture, out / f"{key}.png", made.texts())


def slope(call: Callable[[int], Any], few: int, many: int) -> dict[str, float]:
    """Start-up and seconds per picture, from two runs: what does not depend on the number, and what does."""
    short, long = (timeit(lambda count=count: call(count), number=1) for count in (few, many))
    each = (long - short) / (many - few)
    return {"start_s": short - few * each, "per_picture_s": each, "pictures_per_s": 1 / each}


def throughput(base: Settings, few: int, many: int, rounds: int) -> list[dict[str, Any]]:
    """Rows of the table: every way once per round, and the median of its rounds."""
    with TemporaryDirectory() as folder:
        numbers = iter(range(10**6))

        def batch(engine: Any, count: int) -> None:
            run_batch(jobs_for(count, base), base, Path(folder, str(next(numbers))), engine)

        ways: dict[str, Callable[[int], Any]] = {
            "plain loop": lambda count: plain_loop(jobs_for(count, base), Path(folder, str(next(numbers)))),
            "todome batch": lambda count: batch(Here(["cpu"]), count),
            "Ray, 1 worker": lambda count: batch(OnRay(LOCAL, (1, 1)), count),
            "Ray, 2 workers": lambda count: batch(OnRay(LOCAL, (2, 2)), count),
        }
        found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        ways["plain loop"](1)  # what is read from the disk for the first time is nobody's
        for _ in range(rounds):
            for name, way in ways.items():
                found[name].append(slope(way, few, many))
                print(name, found[name][-1], file=sys.stderr, flush=True)
    return [{"way": name, **medians(rows)} for name, rows in found.items()]


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {field: round(statistics.median(row[field] for row in rows), 4) for field in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=8, help="pictures of the shorter run")
    parser.add_argument("--many", type=int, default=40, help="pictures of the longer run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/batch.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    base = replace(recommended_settings(), size=(options.size, options.size), steps=options.steps, device="cpu")
    cluster = round(timeit(lambda: OnRay(LOCAL, (1, 1)), number=1), 2)
    rows = throughput(base, options.few, options.many, options.rounds)
    machine = {**about(torch.device("cpu"), "diffusers", "ray"), "cores": os.cpu_count()}
    settings = {"size": options.size, "steps": options.steps, "few": options.few, "many": options.many}
    command = f"benchmarks/batch.py --rounds {options.rounds}"
    content = {"machine": machine, "command": command, **settings, "cluster_start_s": cluster}
    write_json(options.out, {**content, "rows": rows})


if __name__ == "__main__":
    main()
