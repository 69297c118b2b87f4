"""The table of docs/speed.md that is made from the results of overhead.py.

python benchmarks/overhead_tables.py benchmarks/results/overhead-h200.json
"""

import json
import sys
from pathlib import Path
from typing import Any

NAMES = {"sd15": "SD 1.5", "sdxl": "SDXL"}
COLUMNS = {
    "dense": "dense",
    "todome dithered": "todome",
    "todome fixed (ToDo)": "ToDo (`fixed`)",
    "bare slice": "bare slice",
    "bound: 8 keys": "bound",
    "todome Merge 0.5": "todome Merge 0.5",
    "tomesd 0.5": "tomesd 0.5",
}


def speed_table(rows: list[dict[str, Any]], mode: str) -> str:
    lines = [f"| model, px, factor | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for case in cases(rows):
        found = {row["method"]: row for row in rows if row["mode"] == mode and same_case(row, case)}
        cells = [f"{found[name]['ms']:.1f} ({found[name]['speedup']:.2f}x)" for name in COLUMNS]
        lines.append(f"| {NAMES[case[0]]}, {case[1]}, {case[2]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cases(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return list(dict.fromkeys((row["model"], row["px"], row["factor"]) for row in rows))


def same_case(row: dict[str, Any], case: tuple[str, int, int]) -> bool:
    return (row["model"], row["px"], row["factor"]) == case


def main() -> None:
    rows = json.loads(Path(sys.argv[1]).read_text())["rows"]
    print(speed_table(rows, "replay"))


if __name__ == "__main__":
    main()
