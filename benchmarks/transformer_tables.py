"""The table of docs/transformers.md that is made from the results of transformer.py.

python benchmarks/transformer_tables.py benchmarks/results/transformer-h200.json
"""

import json
import sys
from pathlib import Path
from typing import Any

NAMES = {
    "todo:2": "the corner of each 2 x 2 cell (ToDo)",
    "todome:2": "dithered keys, factor 2",
    "todome:4": "dithered keys, factor 4",
}


def name_of(row: dict[str, Any], steps: int) -> str:
    return NAMES.get(row["method"], f"**control**: {row['steps']} of {steps} steps, dense")


def cell(row: dict[str, Any] | None) -> str:
    """Closeness, and for methods what a step gains; dense steps in the same time as factor 2 are marked."""
    if row is None:
        return "-"
    gain = f" ({row['speedup']:.2f}x)" if row["method"] in NAMES else " (as fast as factor 2)" * row["equal_cost"]
    return f"{row['psnr']:.1f}{gain}"


def table(rows: list[dict[str, Any]]) -> str:
    dense = {row["px"]: row for row in rows if row["method"] == "dense"}
    others = [{**row, "speedup": dense[row["px"]]["ms"] / row["ms"]} for row in rows if row["method"] != "dense"]
    order = [*NAMES, *sorted({r["method"] for r in others} - set(NAMES), key=lambda name: -int(name.split(":")[1]))]
    lines = [f"| what attention is given | {' | '.join(f'{px} px' for px in dense)} |", "|---" * (len(dense) + 1) + "|"]
    for method in order:
        found = {row["px"]: row for row in others if row["method"] == method}
        cells = [cell(found.get(px)) for px in dense]
        lines.append(
            f"| {name_of(next(iter(found.values())), next(iter(dense.values()))['steps'])} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def main() -> None:
    print(table(json.loads(Path(sys.argv[1]).read_text())["rows"]))


if __name__ == "__main__":
    main()
