"""How much longer `todome generate` takes beside two busy loops: with threads of torch that spin while they wait, and
with threads that sleep.

    python benchmarks/beside.py --out benchmarks/results/beside.json

Where threads spin, the system gives a core to those that wait, and the one that they wait for gets no turn. `todome`
has them sleep (OMP_WAIT_POLICY=passive). Each is measured alone too, in turns, on a machine that does nothing else.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median

import torch

from todome.tools.machine import about
from todome.tools.measuring.runs import write_json

SPINNING = {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"}  # what OpenMP of GNU and of LLVM do by default
WAITING = {"spinning": SPINNING, "sleeping": {"OMP_WAIT_POLICY": "passive"}}
BUSY = [sys.executable, "-S", "-c", "while True: pass"]
LOOPS = 2
COMMAND = (sys.executable, "-m", "todome", "generate", "a red tulip", "--device", "cpu", "-o", "tulip.png")


def seconds(waiting: str, loops: int, steps: int) -> float:
    """Of one picture, with all that the command does before and after it."""
    own = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | WAITING[waiting]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        for _ in range(loops):
            running.callback(running.enter_context(subprocess.Popen(BUSY)).kill)
        began = time.perf_counter()
        words = [*COMMAND, "--steps", str(steps)]
        subprocess.run(words, cwd=folder, env=own, check=True, capture_output=True)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found: dict[tuple[str, int], list[float]] = {case: [] for case in product(WAITING, (0, LOOPS))}
    for _ in range(options.rounds):
        for case, times in found.items():
            times.append(seconds(*case, options.steps))
    middle = {case: round(median(times), 2) for case, times in found.items()}
    rows = [{"threads": way, "alone": middle[way, 0], "beside": middle[way, LOOPS]} for way in WAITING]
    command = f"benchmarks/beside.py --steps {options.steps} --rounds {options.rounds}"
    facts = {"cores": os.cpu_count(), "loops": LOOPS, "command": command}
    write_json(options.out, {"about": about(torch.device("cpu"), "diffusers") | facts, "rows": rows})
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
