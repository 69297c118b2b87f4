"""The tables of docs/training.md that are made from the results of training.py.

python benchmarks/training_tables.py benchmarks/results/training-h200.json
"""

import itertools
import json
import sys
from pathlib import Path
from typing import Any

from speed_tables import NAMES

CASE = ("model", "px", "pictures", "checkpointing", "mode", "attention")
METHODS = ("dense", "todome:2,phase=random", "todome:4,2,phase=random")
HEAD = "| model, px | checkpointing | dense | factor 2 | factors 4, 2 | memory dense | factor 2 | factors 4, 2 |"
PLAIN_HEAD = "| model, px | attention | dense | factor 2 | factors 4, 2 | memory dense | factor 2 | factors 4, 2 |"


def table(rows: list[dict[str, Any]], head: str, second: str) -> str:
    """Milliseconds of a step with the speed-up over dense, and the GiB it needs beyond the weights."""
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for _, group in itertools.groupby(rows, lambda row: [row[name] for name in CASE]):
        found = {row["method"]: row for row in reversed(list(group))}  # the first dense, not the one that ends a case
        case = found["dense"]
        words = {True: "on", False: "off"}.get(case[second], case[second])
        cells = [time_of(found[name]) for name in METHODS] + [f"{found[n]['peak_mib'] / 1024:.1f}" for n in METHODS]
        lines.append(f"| {NAMES[case['model']]}, {case['px']} | {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def time_of(row: dict[str, Any]) -> str:
    taken = f"{row['ms']['median']:.0f}"
    return taken if row["method"] == "dense" else f"{taken} ({row['speedup']:.2f}x)"


def main() -> None:
    rows = json.loads(Path(sys.argv[1]).read_text())["rows"]
    usual = [row for row in rows if row["mode"] == "cuda-graph" and row["pictures"] == 4]
    plain = [row for row in rows if row["pictures"] == 1]
    print(table(usual, HEAD, "checkpointing"), table(plain, PLAIN_HEAD, "attention"), sep="\n\n")


if __name__ == "__main__":
    main()
