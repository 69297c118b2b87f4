"""The table of docs/quality.md about plans, made from the results of tuning.py.

python benchmarks/tuning_tables.py benchmarks/results/tuning-h200.json
"""

import json
import sys
from pathlib import Path
from typing import Any

Row = dict[str, Any]
AS_FAST = 0.99  # of a plan's speed: timings of one setting differ by as much


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


def main() -> None:
    print(plans_table(json.loads(Path(sys.argv[1]).read_text())["rows"]))


if __name__ == "__main__":
    main()
