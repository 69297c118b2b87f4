"""The tables of docs/quality.md about plans, made from the results of tuning.py and the measurements beside them.

python benchmarks/tuning_tables.py benchmarks/results/tuning-h200.json
"""

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from todome.tools.tuning.drawings import decibels

Row = dict[str, Any]
AS_FAST = 0.99  # of a plan's speed: timings of one setting differ by as much
SPLITS = 500  # of the held-out pictures into halves


def plans_table(rows: list[Row]) -> str:
    """Every plan beside the closest uniform factors that are as fast, the fastest as close, and fewer steps."""
    heads = ["px, budget", "the plan", "uniform, as fast", "uniform, within the budget", "dense steps, as fast"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in (one for one in rows if one["kind"] == "plan"):
        same = [one for one in rows if one["px"] == row["px"]]
        others = {kind: [one for one in same if one["kind"] == kind] for kind in ("uniform", "steps")}
        cells = [f"{row['px']}, {row['keep']:g} dB", shown(row) if "psnr" in row else "nothing to gain"]
        cells += [told(closest(others["uniform"], row)), told(fastest(others["uniform"], row))]
        cells += [told(closest(others["steps"], row))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def closest(rows: list[Row], plan: Row) -> Row | None:
    """Of those that are at least as fast as a plan."""
    fast = [row for row in rows if row["speedup"] >= AS_FAST * plan["speedup"]]
    return max(fast, key=lambda row: row["psnr"], default=None)


def fastest(rows: list[Row], plan: Row) -> Row | None:
    """Of those that keep the budget of a plan."""
    return max((row for row in rows if row["psnr"] >= plan["keep"]), key=lambda row: row["speedup"], default=None)


def shown(row: Row) -> str:
    return f"{row['psnr']:.1f} dB, {row['speedup']:.2f}x"


def told(row: Row | None) -> str:
    return "none" if row is None else f"{row['name']}: {shown(row)}"


class Drawn(NamedTuple):
    """A plan that was drawn: the error of each held-out picture, and its speed."""

    errors: Sequence[float]
    speedup: float

    def psnr(self, pictures: Sequence[int]) -> float:
        return decibels(fmean(self.errors[i] for i in pictures))


def halves_table(rows: list[Row], folder: Path) -> str:
    """What plans that half of the held-out pictures choose have on the other half."""
    heads = ["px, budget", "pictures that choose", "dB on these", "dB on as many others", "within the budget there"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in (one for one in rows if one["kind"] == "plan"):
        drawn, pictures = plans_drawn(folder / str(row["px"])), row["pictures"]
        own, other = zip(*halves(drawn, pictures, row["keep"]), strict=True)
        kept = fmean(psnr >= row["keep"] for psnr in other)
        cells = [f"{row['px']}, {row['keep']:g} dB", str(pictures // 2), f"{median(own):.1f}", f"{median(other):.1f}"]
        lines.append("| " + " | ".join([*cells, f"{kept:.0%}"]) + " |")
    return "\n".join(lines)


def halves(drawn: Sequence[Drawn], pictures: int, keep: float) -> Iterator[tuple[float, float]]:
    """PSNR of the fastest plan that half of the pictures allow, on these and on the others; of many splits."""
    source = random.Random(0)
    for _ in range(SPLITS):
        mixed = source.sample(range(pictures), pictures)
        own, other = mixed[: pictures // 2], mixed[pictures // 2 :]
        kept = [plan for plan in drawn if plan.psnr(own) >= keep]
        if kept:
            best = max(kept, key=lambda plan: plan.speedup)
            yield best.psnr(own), best.psnr(other)


def plans_drawn(folder: Path) -> list[Drawn]:
    """Every plan that the search drew, for any budget."""
    lines = (folder / "measurements.jsonl").read_text().splitlines()
    found = {json.dumps(one["what"]): one["found"] for one in map(json.loads, lines)}
    errors = {key: value for key, value in found.items() if key.startswith('{"picture errors": ')}
    speeds = {key: found[key.replace("picture errors", "speed-up")]["speedup"] for key in errors}
    return [Drawn(errors[key], speeds[key]) for key in errors]


def main() -> None:
    path = Path(sys.argv[1])
    rows = json.loads(path.read_text())["rows"]
    print(plans_table(rows), halves_table(rows, path.with_suffix("")), sep="\n\n")


if __name__ == "__main__":
    main()
