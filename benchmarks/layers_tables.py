"""The tables of docs/quality.md about single layers, made from the results of layers.py.

python benchmarks/layers_tables.py benchmarks/results/layers.json
"""

import json
import sys
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def layers_table(rows: list[Row]) -> str:
    """A row for each model, size, factor and layer: alone, and all of its level without it, beside all of them."""
    lines = ["| model, px, factor | layer | it alone | its level without it | all of its level |", "|---" * 5 + "|"]
    alone = [row for row in rows if row["which"] == "alone"]
    for row in sorted(alone, key=lambda row: (row["model"], row["px"], row["level"], row["factor"])):
        same = [one for one in rows if all(one[key] == row[key] for key in ("model", "px", "level", "factor"))]
        without = next((one for one in same if one["which"] == "without" and one["layer"] == row["layer"]), None)
        whole = next((one for one in same if one["which"] == "all"), None)
        cells = [f"{row['model']}, {row['px']}, {row['factor']:g}", row["layer"]]
        cells += ["" if one is None else f"{one['db']:.1f} dB" for one in (row, without, whole)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def gentle_table(rows: list[Row]) -> str:
    """A row for each model, size, level and factor: all layers alike, and the first of each way by half of it."""
    lines = ["| model, px, level, factor | all layers alike | the first of each way by half of it |", "|---" * 3 + "|"]
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
    names = {one["layer"] for one in rows if one["which"] == "alone" and one["level"] == row["level"]}
    halved = [row["which"] == "gentle" and name.endswith(".0") for name in names]
    return sum((2 if half else 1) ** 2 / row["factor"] ** 2 for half in halved) / len(names)


def main() -> None:
    rows = json.loads(Path(sys.argv[1]).read_text())["rows"]
    print(layers_table(rows), gentle_table(rows), sep="\n\n")


if __name__ == "__main__":
    main()
