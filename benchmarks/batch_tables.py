"""The tables of docs/beyond.md, made from the results of batch.py.

python benchmarks/batch_tables.py benchmarks/results/batch.json
"""

import json
import sys
from pathlib import Path
from typing import Any

GPUS = 64
SECONDS = (0.5, 2.0, 8.0)  # that one picture takes on one GPU


def speed_table(found: dict[str, Any]) -> str:
    lines = ["| | start-up, s | pictures/s | against a plain loop |", "|---|---|---|---|"]
    plain = found["rows"][0]["pictures_per_s"]
    for row in found["rows"]:
        rate = row["pictures_per_s"]
        lines.append(f"| {row['way']} | {row['start_s']:.1f} | {rate:.2f} | {rate / plain:.2f}x |")
    return "\n".join(lines)


def paper_table(found: dict[str, Any]) -> str:
    """What so many GPUs could draw, and how much of one core the driver would need: on paper, not measured."""
    cost, lines = found["driver"]["wall_ms_per_row"] / 1e3, []
    for seconds in SECONDS:
        asked, limit = GPUS / seconds, 1 / cost
        share = min(1.0, limit / asked)
        lines.append(f"| {seconds:g} | {asked:.0f} | {limit:.0f} | {100 * share:.0f} % |")
    head = f"| s per picture | pictures/s of {GPUS} GPUs | rows/s of the driver | GPUs kept busy |"
    return "\n".join([head, "|---|---|---|---|", *lines])


def main() -> None:
    found = json.loads(Path(sys.argv[1]).read_text())
    print(speed_table(found), paper_table(found), sep="\n\n")


if __name__ == "__main__":
    main()
