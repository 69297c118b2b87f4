"""The tables of docs/speed.md that are made from the results of speed.py.

python benchmarks/speed_tables.py benchmarks/results/speed-h200.json
"""

import re
import sys
from pathlib import Path

from todome.tools.measuring.speed import Bench, BenchCase, BenchRow, read_bench

NAMES = {"sd15": "SD 1.5", "sd21": "SD 2.1", "sdxl": "SDXL"}
COLUMNS = {  # a method without its factor, which the first column of a table says
    "dense": "dense",
    "todome": "todome",
    "todome,2": "todome, levels 1 + 2",
    "todo": "ToDo (`fixed`)",
    "tome:0.5": "todome Merge 0.5",
    "tomesd:0.5": "tomesd 0.5",
    "ca-tome:-1": "ca-tome, at most",
    "deepcache:3": "DeepCache",
    "todome+deepcache:3": "todome + DeepCache",
}
MEMORY = ("dense", "todome", "tome:0.5", "tomesd:0.5", "ca-tome:-1", "todome+deepcache:3")


def column_of(row: BenchRow) -> str:
    return re.sub(r"^(todome|todo):\d", r"\1", row.method)


def factor_of(rows: list[BenchRow]) -> str:
    return next(row.method.split(":")[1] for row in rows if column_of(row) == "todome")


def cases(found: Bench, mode: str, pictures: int) -> list[BenchCase]:
    return [case for case in found.cases() if (case.mode, case.pictures) == (mode, pictures)]


def speed_table(found: Bench, mode: str, pictures: int) -> str:
    """Milliseconds of a call, and the speed-up over dense; methods that were not measured here have no column."""
    chosen = cases(found, mode, pictures)
    measured = {column_of(row) for case in chosen for row in found.of(case) if row.ms is not None}
    columns = [name for name in COLUMNS if name in measured]
    lines = [
        f"| model, px, factor | {' | '.join(COLUMNS[name] for name in columns)} |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for case in chosen:
        rows = {column_of(row): row for row in found.of(case)}
        head = f"{NAMES[case.model]}, {case.size[0]}, {factor_of(found.of(case))}"
        lines.append(f"| {head} | {' | '.join(cell(rows.get(name)) for name in columns)} |")
    return "\n".join(lines)


def cell(row: BenchRow | None) -> str:
    if row is None or row.ms is None:
        return ""
    return f"{row.ms:.1f}" if row.method == "dense" else f"{row.ms:.1f} ({row.speedup:.2f}x)"


def memory_table(found: Bench) -> str:
    """Working memory of an eager call, beyond the weights."""
    lines = [f"| model, px | {' | '.join(COLUMNS[name] for name in MEMORY)} |", "|---" * (len(MEMORY) + 1) + "|"]
    for case in cases(found, "eager", 1):
        mib = {column_of(row): row.mib for row in found.of(case)}
        lines.append(f"| {NAMES[case.model]}, {case.size[0]} | {' | '.join(f'{mib[name]:.0f}' for name in MEMORY)} |")
    return "\n".join(lines)


def main() -> None:
    found = read_bench(Path(sys.argv[1]))
    tables = [
        speed_table(found, mode, pictures) for mode, pictures in (("cuda-graph", 1), ("cuda-graph", 4), ("eager", 1))
    ]
    print(*tables, memory_table(found), sep="\n\n")


if __name__ == "__main__":
    main()
