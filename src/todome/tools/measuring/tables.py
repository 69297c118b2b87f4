"""Tables of results as text: of an evaluation, of a benchmark, and those of the ToMe and ToDo papers in their layouts.

A table is a list of columns. Those of an evaluation are the columns of its report too.
"""

import math
from collections.abc import Callable, Sequence
from operator import neg
from statistics import fmean
from typing import Any, NamedTuple

from ...errors import invalid_value
from ...levers.downsample import Downsample
from ...levers.merge import Merge
from ..pipelines import EMBEDDED, Size, format_size
from .methods import method_named
from .runs import Closeness, Evaluation, EvaluationRow
from .verdict import THRESHOLDS

NONE = "-"  # where a row has no such value
MERGED = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)  # of ToMe's table
FACTORS = (2, 3, 4)  # of ToDo's table
SD, FLOWERS = 512, 256  # pixels on a side whose finest level has 64 x 64 tokens


class Column(NamedTuple):
    """A column: its head, the value of a row and how it is written, what it says, and what is least for the best."""

    head: str
    read: Callable[[Any], float | str | None]
    form: str = "{}"
    about: str = ""
    loss: Callable[[float], float] = abs

    def text(self, row: Any) -> str:
        value = self.read(row)
        return NONE if value is None else self.form.format(value)


def filled(columns: Sequence[Column], rows: Sequence[Any]) -> list[Column]:
    """The columns that have a value in some row."""
    return [column for column in columns if any(column.read(row) is not None for row in rows)]


def markdown(columns: Sequence[Column], rows: Sequence[Any]) -> str:
    """A table in Markdown whose cells stand below each other; a column that has no value is left out."""
    left = [[column.head, *map(column.text, rows)] for column in filled(columns, rows)]
    widths = [max(map(len, cells)) for cells in left]
    lines = list(zip(*left, strict=True))
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def worst(values: Sequence[float], *, largest: bool = False) -> float | None:
    """The mean of the worst 5 %, at least one: the smallest, or of a distance the largest."""
    return mean(sorted(values, reverse=largest)[: max(1, len(values) // 20)])


def title(row: EvaluationRow) -> str:
    return method_named(row.method).title


MEASURES = (
    Column("speed-up", lambda r: r.speedup, "{:.2f}x", "Times as fast as full attention, the whole pipeline.", neg),
    Column("s / picture", lambda r: r.seconds, "{:.3f}", "Seconds for one picture, the whole pipeline."),
    Column("GB / picture", lambda r: r.gigabytes, "{:.2f}", "Memory of the GPU at its peak, per picture."),
    Column(
        "PSNR, dB",
        lambda r: mean(r.closeness.psnr),
        "{:.1f}",
        f"How close the pixels are to full attention. {THRESHOLDS} 100 is the same picture.",
        neg,
    ),
    Column(
        "worst 5 %",
        lambda r: worst(r.closeness.psnr),
        "{:.1f}",
        "PSNR of the worst 5 %, at least one picture.",
        neg,
    ),
    Column("SSIM", lambda r: mean(r.closeness.ssim), "{:.3f}", "How alike structures are; 1 is the same.", neg),
    Column("MS-SSIM", lambda r: mean(r.closeness.ms_ssim), "{:.3f}", "SSIM at several scales; 1 is the same.", neg),
    Column(
        "LPIPS",
        lambda r: mean(r.closeness.lpips),
        "{:.4f}",
        "How different the pictures look to a network that was trained on people's judgement; 0 is the same.",
    ),
    Column(
        "detail",
        lambda r: mean(r.closeness.detail),
        "{:.2f}",
        "Fine detail as a share of that of full attention: less than 1 is softer, more is grainier.",
        lambda value: abs(value - 1),
    ),
    Column(
        "FID",
        lambda r: r.fid,
        "{:.2f}",
        "How far the pictures are, as a set, from those with full attention, or from the real ones of the settings.",
    ),
)


def closeness_table(run: Evaluation) -> str:
    """Every measure, the closest method first; one table for each size."""
    tables = []
    for size in dict.fromkeys(row.size for row in run.rows):
        rows = sorted((row for row in run.rows if row.size == size), key=lambda row: -mean_psnr(row.closeness))
        drawn = f"{rows[0].pictures} picture{'s' * (rows[0].pictures != 1)} of each"
        table = markdown([Column("method", title), *MEASURES], rows)
        tables.append(f"{format_size(size)} pixels, {drawn}\n\n{table}")
    return "\n\n".join(tables)


def mean_psnr(closeness: Closeness) -> float:
    """Of dense, which is compared with nothing, infinite."""
    return fmean(closeness.psnr) if closeness.psnr else math.inf


def tome_table(run: Evaluation) -> str:
    """As ToMe for SD has it: dense as r = 0 %, the merged shares, and below them every other method."""
    dense = {row.size: row for row in run.rows if row.is_dense}
    columns = (
        Column("size", lambda row: format_size(row.size) if len(dense) > 1 else None),
        Column("r%", lambda row: title(row) if merged_share(row) is None else f"{100 * (merged_share(row) or 0):g}"),
        Column("FID ↓", lambda row: row.fid, "{:.2f}"),
        Column("s/im ↓", lambda row: with_ratio(row.seconds, dense[row.size].seconds)),
        Column("GB/im ↓", lambda row: with_ratio(row.gigabytes, dense[row.size].gigabytes)),
    )
    order = sorted(run.rows, key=lambda row: (row.size, merged_share(row) is None, merged_share(row) or 0))
    return markdown(columns, order)


def merged_share(row: EvaluationRow) -> float | None:
    """The share of tokens that ToMe merges, 0 of dense; None of other methods."""
    reduction = method_named(row.method).reduction
    if isinstance(reduction, Merge) and isinstance(reduction.ratio, (int, float)):
        return reduction.ratio
    return 0.0 if row.is_dense else None


def with_ratio(value: float | None, dense: float | None) -> str | None:
    """A value, and in brackets how many times smaller it is than that of dense."""
    if value is None:
        return None
    return f"{value:.3f}" if dense in (None, value) else f"{value:.3f} ({dense / value:.2f}x)"


def todo_table(run: Evaluation) -> str:
    """As ToDo has it: every size, the share of keys that attention does without, and how close and how fast it is."""
    columns = (
        Column("size", lambda row: format_size(row.size)),
        Column("method", title),
        Column("ratio", dropped_share, "{:.4g}"),
        Column("MSE ↓", lambda row: mean(row.closeness.mse), "{:.5f}"),
        Column("HPF ↑", lambda row: mean(row.closeness.detail), "{:.3f}"),
        Column("PSNR ↑", lambda row: mean(row.closeness.psnr), "{:.1f}"),
        Column("im/s ↑", lambda row: 1 / row.seconds, "{:.3f}"),
    )
    return markdown(columns, run.rows)


def dropped_share(row: EvaluationRow) -> float | None:
    reduction = method_named(row.method).reduction
    if isinstance(reduction, Downsample) and isinstance(reduction.factor, (int, float)):
        return 1 - 1 / reduction.factor**2
    return merged_share(row) or None


BENCH = (
    Column("method", lambda row: row.method),
    Column("ms a call", lambda row: row.note.partition(":")[0] or plus_minus(row.ms, row.ms_quartiles, "{:.1f}")),
    Column("speed-up", lambda row: plus_minus(row.speedup, row.speedup_quartiles, "{:.2f}", "x")),
    Column("it/s", lambda row: row.per_second, "{:.2f}"),
    Column("s / picture", lambda row: row.seconds, "{:.2f}"),
    Column("MiB", lambda row: row.mib, "{:.0f}"),
)


def plus_minus(value: float | None, quartiles: Sequence[float] | None, form: str, unit: str = "") -> str | None:
    """With half of the distance between the quartiles: half of the rounds lie closer. A single round has none."""
    if value is None:
        return None
    low, high = quartiles or (0.0, 0.0)
    return form.format(value) + unit + (f" ± {form.format((high - low) / 2)}" if low != high else "")


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
