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
    for row in (row for row in rows if row["which"] == "gentle"):
        same = [one for one in rows if all(one[key] == row[key] for key in ("model", "px", "level", "factor"))]
        whole = next(one for one in same if one["which"] == "all")
        case = f"{row['model']}, {row['px']}, {row['level']}, {row['factor']:g}"
        lines.append(f"| {case} | {whole['db']:.1f} dB | {row['db']:.1f} dB |")
    return "\n".join(lines)


def main() -> None:
    rows = json.loads(Path(sys.argv[1]).read_text())["rows"]
    print(layers_table(rows), gentle_table(rows), sep="\n\n")


if __name__ == "__main__":
    main()
