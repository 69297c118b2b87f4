"""The tables of docs/quality.md, made from the results of fidelity.py.

python benchmarks/fidelity_tables.py benchmarks/results/fidelity-h200.json
"""

import json
import sys
from pathlib import Path
from typing import Any

Row = dict[str, Any]
MAIN = ("tomesd 0.5", "fixed 2 (ToDo)", "dither 2", "fixed 4 (ToDo)", "dither 4", "dither 2+2")


def group_of(row: Row) -> tuple[int, str, int]:
    """Rows that are compared with the same dense pictures."""
    return row["px"], row["scheduler"], row["steps"]


def name_of(row: Row) -> str:
    if row["method"] != "dense":
        return row["method"]
    return "dense" if row["taken"] == row["steps"] else f"dense, {row['taken']} of {row['steps']} steps"


def speedup(row: Row, rows: list[Row]) -> float:
    """Over the fastest dense run of the same size and number of steps: the scheduler takes next to no time."""
    alike = [other for other in rows if is_dense(other) and all(other[key] == row[key] for key in ("px", "steps"))]
    return min(other["seconds"] for other in alike) / row["seconds"]


def is_dense(row: Row) -> bool:
    return row["method"] == "dense" and row["taken"] == row["steps"]


def main_table(rows: list[Row]) -> str:
    """Every measure of every method, at 256 px with 25 steps of DPM++, the closest first."""
    lines = ["| | speed-up | PSNR, dB | worst 5 % | SSIM | LPIPS | detail |", "|---" * 7 + "|"]
    chosen = [row for row in rows if group_of(row) == (256, "dpm++", 25) and not is_dense(row)]
    for row in sorted(chosen, key=lambda row: -row["psnr"]):
        values = f"{row['psnr']:.1f} | {row['psnr_worst']:.1f} | {row['ssim']:.3f} | {row['lpips']:.4f}"
        lines.append(f"| {name_of(row)} | {speedup(row, rows):.2f}x | {values} | {row['high_frequency']:.2f} |")
    return "\n".join(lines)


def conditions_table(rows: list[Row]) -> str:
    """PSNR of the main methods under every size, scheduler and number of steps."""
    lines = ["| px, scheduler, steps, pictures | " + " | ".join(MAIN) + " |", "|---" * (len(MAIN) + 1) + "|"]
    for group in dict.fromkeys(group_of(row) for row in rows):
        found = {row["method"]: row for row in rows if group_of(row) == group and row["method"] in MAIN}
        if found:
            cells = [f"{found[n]['psnr']:.1f} ({speedup(found[n], rows):.2f}x)" if n in found else "" for n in MAIN]
            pictures = next(iter(found.values()))["pictures"]
            lines.append(f"| {group[0]}, {group[1]}, {group[2]}, {pictures} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    rows = json.loads(Path(sys.argv[1]).read_text())["rows"]
    print(main_table(rows), conditions_table(rows), sep="\n\n")


if __name__ == "__main__":
    main()
