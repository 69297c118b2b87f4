"""The table of docs/quality.md about layers that are reduced less, made from the results of layers.py.

python benchmarks/layers_tables.py benchmarks/results/layers.json
"""

import json
import sys
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def gentle_table(rows: list[Row]) -> str:
    """A row for each model, size, level and factor: all layers alike, and the first of each path by half of it."""
    lines = ["| model, px, level, factor | all layers alike | the first of each path by half of it |", "|---" * 3 + "|"]
    gentle = [row for row in rows if row["which"] == "gentle"]
    for row in sorted(gentle, key=lambda row: (row["model"], row["px"], row["level"], row["factor"])):
        same = [one for one in rows if all(one[key] == row[key] for key in ("model", "px", "level", "factor"))]
        whole = next(one for one in same if one["which"] == "all")
        case = f"{row['model']}, {row['px']}, {row['level']}, {row['factor']:g}"
        cells = [f"{one['db']:.1f} dB with {kept_share(rows, one):.0%} of the keys" for one in (whole, row)]
        lines.append("| " + " | ".join([case, *cells]) + " |")
    return "\n".join(lines)


def kept_share(rows: list[Row], row: Row) -> float:
    """Of the keys of a level, where all its layers are reduced, or its first ones by half of the factor."""
    same = [one for one in rows if all(one[key] == row[key] for key in ("model", "px", "level"))]
    names = {one["layer"] for one in same if one["which"] == "alone"}
    halved = [row["which"] == "gentle" and name.endswith(".0") for name in names]
    return sum((2 if half else 1) ** 2 / row["factor"] ** 2 for half in halved) / len(names)


def main() -> None:
    rows = json.loads(Path(sys.argv[1]).read_text())["rows"]
    print(gentle_table(rows))


if __name__ == "__main__":
    main()
