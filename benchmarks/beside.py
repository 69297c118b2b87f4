"""How much longer `todome generate` takes beside other programs, with threads of torch that spin while they wait and
with threads that sleep.

    python benchmarks/beside.py --out benchmarks/results/beside.json

Two busy loops run beside it. Where threads spin, the system gives a core to those that wait, and the one that they wait
for gets no turn. `todome` has them sleep (OMP_WAIT_POLICY=passive). Both are measured alone too, in turns, on a machine
that does nothing else.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

from todome.tools.machine import about
from todome.tools.measuring.runs import write_json

SPINNING = {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"}  # what OpenMP of GNU and of LLVM do by default
WAITING: dict[str, dict[str, str]] = {"spinning": SPINNING, "sleeping": {"OMP_WAIT_POLICY": "passive"}}
WORDS = ("generate", "a red tulip", "--device", "cpu", "--force", "-o", "tulip.png")


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def seconds(waiting: str, steps: int, loops: int) -> float:
    """Of one picture, with all that the command does before and after it."""
    own = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    with tempfile.TemporaryDirectory() as folder, busy_loops(loops):
        began = time.perf_counter()
        words = [sys.executable, "-m", "todome", *WORDS, "--steps", str(steps)]
        subprocess.run(words, cwd=folder, env={**own, **WAITING[waiting]}, check=True, capture_output=True)
        return time.perf_counter() - began


def measure(rounds: int, steps: int, loops: int) -> list[dict[str, Any]]:
    """The median seconds with each way to wait, alone and beside the loops, and the ratio of the two."""
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for count in (0, loops):
            for waiting in WAITING:
                found.setdefault((waiting, count), []).append(seconds(waiting, steps, count))
    rows = []
    for waiting in WAITING:
        alone, beside = median(found[waiting, 0]), median(found[waiting, loops])
        ratio = round(beside / alone, 2)
        rows.append({"threads": waiting, "alone": round(alone, 2), "beside": round(beside, 2), "ratio": ratio})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--loops", type=int, default=2, help="busy loops beside it")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = measure(asked.rounds, asked.steps, asked.loops)
    for row in rows:
        print("{threads}: {alone} s alone, {beside} s beside, {ratio} times as long".format(**row))
    if asked.out:
        command = f"python benchmarks/beside.py --rounds {asked.rounds} --steps {asked.steps} --loops {asked.loops}"
        machine = about(torch.device("cpu"), "diffusers")
        write_json(asked.out, {"about": machine | {"cores": os.cpu_count()}, "command": command, "rows": rows})


if __name__ == "__main__":
    main()
