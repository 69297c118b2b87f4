"""The table of a report: a column for each measure, the best value of each marked."""

from collections.abc import Callable, Sequence
from operator import neg
from typing import NamedTuple

from .measure_texts import DETAIL, FID, LPIPS, MS_SSIM, PSNR, SSIM
from .report_text import colour_of, title_of
from .runs import EvaluationRow
from .tables import mean, worst


class Measure(NamedTuple):
    """A column of the table."""

    head: str
    about: str
    read: Callable[[EvaluationRow], float | None]
    form: str
    loss: Callable[[float], float]  # least for the best


MEASURES = (
    Measure(
        "speed-up", "How many times as fast as full attention, the whole pipeline.", lambda r: r.speedup, "{:.2f}x", neg
    ),
    Measure("s / picture", "Seconds for one picture, the whole pipeline.", lambda r: r.seconds, "{:.3f}", abs),
    Measure("GB / picture", "Memory of the GPU at its peak, per picture.", lambda r: r.gigabytes, "{:.2f}", abs),
    Measure("PSNR, dB", PSNR + " 100 is the same picture.", lambda r: mean(r.closeness.psnr), "{:.1f}", neg),
    Measure(
        "worst 5 %", "PSNR of the worst 5 %, at least one picture.", lambda r: worst(r.closeness.psnr), "{:.1f}", neg
    ),
    Measure("SSIM", SSIM, lambda r: mean(r.closeness.ssim), "{:.3f}", neg),
    Measure("MS-SSIM", MS_SSIM, lambda r: mean(r.closeness.ms_ssim), "{:.3f}", neg),
    Measure("LPIPS", LPIPS, lambda r: mean(r.closeness.lpips), "{:.4f}", abs),
    Measure("detail", DETAIL, lambda r: mean(r.closeness.detail), "{:.2f}", lambda value: abs(value - 1)),
    Measure("FID", FID, lambda r: r.fid, "{:.2f}", abs),
)


class Cell(NamedTuple):
    text: str
    best: bool


class Line(NamedTuple):
    """A method in the table."""

    title: str
    colour: str
    cells: Sequence[Cell]


def table_lines(rows: Sequence[EvaluationRow], measures: Sequence[Measure]) -> list[Line]:
    best = {measure: best_text(measure, rows) for measure in measures}

    def cell(row: EvaluationRow, measure: Measure) -> Cell:
        text = text_of(measure, row)
        return Cell(text, best=not row.is_dense and text == best[measure])

    return [Line(title_of(row.method), colour_of(row), [cell(row, measure) for measure in measures]) for row in rows]


def text_of(measure: Measure, row: EvaluationRow) -> str:
    value = measure.read(row)
    return "" if value is None else measure.form.format(value)


def best_text(measure: Measure, rows: Sequence[EvaluationRow]) -> str | None:
    """The best of a column as it is written there; none where there is nothing to choose from."""
    values = [value for row in rows if not row.is_dense and (value := measure.read(row)) is not None]
    return measure.form.format(min(values, key=measure.loss)) if len(values) > 1 else None
