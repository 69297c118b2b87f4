"""Markdown tables of an evaluation: todome's own, and those of the ToMe and ToDo papers in their layouts."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from ...errors import invalid_value
from ...reductions import Downsample, Merge
from ..pipelines import EMBEDDED, Size, format_size
from .methods import method_named
from .runs import Closeness, Evaluation, EvaluationRow

NONE = "-"  # where a method has no such value
MERGED = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)  # of ToMe's table
FACTORS = (2, 3, 4)  # of ToDo's table
SD, FLOWERS = 512, 256  # pixels on a side whose finest level has 64 x 64 tokens


def mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def worst(values: Sequence[float], *, largest: bool = False) -> float | None:
    """The mean of the worst 5 %, at least one: the smallest, or of a distance the largest."""
    return mean(sorted(values, reverse=largest)[: max(1, len(values) // 20)])


def number(value: float | None, digits: int, unit: str = "") -> str:
    return NONE if value is None else f"{value:.{digits}f}{unit}"


def markdown(columns: Mapping[str, Sequence[str]]) -> str:
    """A table whose cells stand below each other; a column that has no value is left out."""
    left = {name: cells for name, cells in columns.items() if set(cells) - {NONE}}
    widths = [max(map(len, (name, *cells))) for name, cells in left.items()]
    lines = [list(left), ["-" * width for width in widths], *zip(*left.values(), strict=True)]
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def columns(rows: Iterable[EvaluationRow], cells: Mapping[str, Callable[[EvaluationRow], str]]) -> str:
    return markdown({name: [cell(row) for row in rows] for name, cell in cells.items()})


def title(row: EvaluationRow) -> str:
    return method_named(row.method).title


def closeness_table(run: Evaluation) -> str:
    """Every measure, the closest method first; one table for each size."""
    cells: dict[str, Callable[[EvaluationRow], str]] = {
        "method": title,
        "speed-up": lambda row: f"{row.speedup:.2f}x",
        "s/im": lambda row: number(row.seconds, 3),
        "im/s": lambda row: number(1 / row.seconds, 2),
        "GB/im": lambda row: number(row.gigabytes, 2),
        "PSNR, dB": lambda row: number(mean(row.closeness.psnr), 1),
        "worst 5 %": lambda row: number(worst(row.closeness.psnr), 1),
        "SSIM": lambda row: number(mean(row.closeness.ssim), 3),
        "MS-SSIM": lambda row: number(mean(row.closeness.ms_ssim), 3),
        "LPIPS": lambda row: number(mean(row.closeness.lpips), 4),
        "detail": lambda row: number(mean(row.closeness.detail), 2),
        "FID": lambda row: number(row.fid, 2),
    }
    tables = []
    for size in dict.fromkeys(row.size for row in run.rows):
        rows = sorted((row for row in run.rows if row.size == size), key=lambda row: -mean_psnr(row.closeness))
        drawn = f"{rows[0].pictures} picture{'s' * (rows[0].pictures != 1)} of each"
        tables.append(f"{format_size(size)} pixels, {drawn}\n\n{columns(rows, cells)}")
    return "\n\n".join(tables)


def mean_psnr(closeness: Closeness) -> float:
    """Of dense, which is compared with nothing, infinite."""
    return fmean(closeness.psnr) if closeness.psnr else math.inf


def tome_table(run: Evaluation) -> str:
    """As ToMe for SD has it: dense as r = 0 %, the merged shares, and below them every other method."""
    dense = {row.size: row for row in run.rows if row.is_dense}
    rows = sorted(run.rows, key=lambda row: (row.size, merged_share(row) is None, merged_share(row) or 0))
    return columns(
        rows,
        {
            "size": lambda row: format_size(row.size) if len(dense) > 1 else NONE,
            "r%": lambda row: title(row) if merged_share(row) is None else f"{100 * (merged_share(row) or 0):g}",
            "FID ↓": lambda row: number(row.fid, 2),
            "s/im ↓": lambda row: with_ratio(row.seconds, dense[row.size].seconds),
            "GB/im ↓": lambda row: with_ratio(row.gigabytes, dense[row.size].gigabytes),
        },
    )


def merged_share(row: EvaluationRow) -> float | None:
    """The share of tokens that ToMe merges, 0 of dense; None of other methods."""
    reduction = method_named(row.method).reduction
    if isinstance(reduction, Merge) and isinstance(reduction.ratio, (int, float)):
        return reduction.ratio
    return 0.0 if row.is_dense else None


def with_ratio(value: float | None, dense: float | None) -> str:
    """A value, and in brackets how many times smaller it is than that of dense."""
    if value is None or dense is None or value == dense:
        return number(value, 3)
    return f"{value:.3f} ({dense / value:.2f}x)"


def todo_table(run: Evaluation) -> str:
    """As ToDo has it: every size, the share of keys that attention does without, and how close and how fast it is."""
    return columns(
        run.rows,
        {
            "size": lambda row: format_size(row.size),
            "method": title,
            "ratio": dropped_share,
            "MSE ↓": lambda row: number(mean(row.closeness.mse), 5),
            "HPF ↑": lambda row: number(mean(row.closeness.detail), 3),
            "PSNR ↑": lambda row: number(mean(row.closeness.psnr), 1),
            "im/s ↑": lambda row: number(1 / row.seconds, 3),
        },
    )


def dropped_share(row: EvaluationRow) -> str:
    reduction = method_named(row.method).reduction
    if isinstance(reduction, Downsample) and isinstance(reduction.factor, (int, float)):
        return f"{1 - 1 / reduction.factor**2:.4g}"
    return NONE if merged_share(row) in (None, 0) else f"{merged_share(row):.4g}"


def tome_fields(model: str, sizes: Sequence[Size] | None) -> dict[str, Any]:
    """What ToMe's table measures: 0 to 60 % merged, in 50 steps of PLMS."""
    methods = [*(f"tome:{ratio}" for ratio in MERGED), "todome:2"]
    return {"methods": methods, "sizes": sizes, "steps": 50, "scheduler": "pndm"}


def todo_fields(model: str, sizes: Sequence[Size] | None) -> dict[str, Any]:
    """What ToDo's table measures: 128 x 128, 192 x 192 and 256 x 256 tokens, which factors 2, 3 and 4 bring to 64 x 64.

    That is SD at 1024, 1536 and 2048 pixels. The embedded model has as many tokens at half of that.
    """
    base = FLOWERS if model == EMBEDDED else SD
    sizes = sizes or [(base * factor, base * factor) for factor in FACTORS]
    only: dict[str, list[str]] = {}
    for size in sizes:
        for method in methods_of_factor(max(2, round(math.sqrt(size[0] * size[1]) / base))):
            only.setdefault(method, []).append(format_size(size))
    return {"methods": list(only), "sizes": sizes, "only": only}


def methods_of_factor(factor: int) -> list[str]:
    """ToMe, ToDo and todome with the same share of keys: 1 in factor x factor."""
    stride = "" if factor == 2 else f",stride={factor}"
    return [f"tome:{round(1 - 1 / factor**2, 2)}{stride}", f"todo:{factor}", f"todome:{factor}"]


class Table(NamedTuple):
    """Table of a paper: the fields of the plan that makes it, its layout, whether it has FID."""

    fields: Callable[[str, Sequence[Size] | None], dict[str, Any]]
    render: Callable[[Evaluation], str]
    fid: bool = False


TABLES = {"tome": Table(tome_fields, tome_table, fid=True), "todo": Table(todo_fields, todo_table)}


def table_named(name: str) -> Table:
    if name not in TABLES:
        raise invalid_value("table", name, " or ".join(TABLES), "Leave it out for todome's own")
    return TABLES[name]
