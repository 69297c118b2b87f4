"""The tables of docs/speed.md that are made from the results of speed.py: of each mode that was measured, and memory.

python benchmarks/speed_tables.py benchmarks/results/speed-h200.json
"""

import re
import sys
from pathlib import Path

from todome.tools.measuring.speed import Bench, BenchCase, BenchRow, read_bench

NAMES = {"sd15": "SD 1.5", "sd21": "SD 2.1", "sdxl": "SDXL", "animatediff": "AnimateDiff", "svd": "SVD"}
MODES = (("cuda-graph", 1), ("cuda-graph", 4), ("eager", 1))
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


def title(case: BenchCase, *more: str) -> str:
    """The model, with its attention where that is not the usual one, and the size."""
    model, _, attention = case.model.partition(", ")
    width, height = case.size
    size = f"{width}" if width == height else f"{width} x {height}"
    return ", ".join([NAMES[model], *filter(None, [attention]), size, *more])


def columns_of(found: Bench, chosen: list[BenchCase]) -> list[str]:
    measured = {column_of(row) for case in chosen for row in found.of(case) if row.ms is not None or is_full(row)}
    return [name for name in COLUMNS if name in measured]


def is_full(row: BenchRow) -> bool:
    return row.note.startswith("out of memory")


def speed_table(found: Bench, mode: str, pictures: int) -> str:
    """Milliseconds of a call, and the speed-up over dense; methods that were not measured here have no column."""
    chosen = cases(found, mode, pictures)
    columns = columns_of(found, chosen)
    lines = [
        f"| model, px, factor | {' | '.join(COLUMNS[name] for name in columns)} |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for case in chosen:
        rows = {column_of(row): row for row in found.of(case)}
        lines.append(
            f"| {title(case, factor_of(found.of(case)))} | {' | '.join(cell(rows.get(name)) for name in columns)} |"
        )
    return "\n".join(lines)


def cell(row: BenchRow | None) -> str:
    if row is None or row.ms is None:
        return "out of memory" if row and is_full(row) else ""
    return f"{row.ms:.1f}" if row.method == "dense" or row.speedup is None else f"{row.ms:.1f} ({row.speedup:.2f}x)"


def memory_table(found: Bench) -> str:
    """Working memory of an eager call, beyond the weights; where there was too little, how much was asked for."""
    chosen = cases(found, "eager", 1) or cases(found, "cuda-graph", 1)
    columns = [name for name in columns_of(found, chosen) if name in MEMORY]
    lines = [f"| model, px | {' | '.join(COLUMNS[name] for name in columns)} |", "|---" * (len(columns) + 1) + "|"]
    for case in chosen:
        rows = {column_of(row): row for row in found.of(case)}
        lines.append(f"| {title(case)} | {' | '.join(memory_cell(rows.get(name)) for name in columns)} |")
    return "\n".join(lines)


def memory_cell(row: BenchRow | None) -> str:
    if row is None or row.mib is None:
        return row.note if row and is_full(row) else ""
    return f"{row.mib:.0f}"


def compile_table(found: Bench) -> str:
    """What torch.compile makes, as a CUDA graph, and of how many graphs it is."""
    lines = ["| model, px, factor | dense, compiled | todome, compiled | graphs |", "|---" * 4 + "|"]
    for case in cases(found, "compile-cuda-graph", 1):
        dense, todome, *_ = found.of(case)
        head, graphs = title(case, factor_of(found.of(case))), f"{dense.graphs} and {todome.graphs}"
        lines.append(f"| {head} | {cell(dense)} | {cell(todome)} | {graphs} |")
    return "\n".join(lines)


def main() -> None:
    found = read_bench(Path(sys.argv[1]))
    tables = [speed_table(found, *mode) for mode in MODES if cases(found, *mode)]
    tables += [memory_table(found)] * bool(tables)
    tables += [compile_table(found)] * bool(cases(found, "compile-cuda-graph", 1))
    print(*tables, sep="\n\n")


if __name__ == "__main__":
    main()
