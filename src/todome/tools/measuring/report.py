"""`todome report`: an evaluation as one HTML file that needs nothing else, made from report.html beside this file."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ...errors import invalid_value
from ..files import atomic_write, check_out, check_out_folder
from ..pictures import BRIGHTER
from ..pipelines import Size, format_size
from ..templates import load_template, look
from .methods import method_named
from .plots import write_plots
from .report_pictures import Embedding, MethodPictures, data_uri, embedding_for, method_pictures
from .report_text import colour_of, command_for, findings, leading, settings_by_name, title_of
from .runs import Evaluation, EvaluationRow, read_results
from .tables import MEASURES, Column, filled

CASES = 12  # of each method


class Cell(NamedTuple):
    text: str
    best: bool


class Line(NamedTuple):
    """A method in the table."""

    title: str
    colour: str
    cells: Sequence[Cell]


class Section(NamedTuple):
    """Everything about one size."""

    size: Size
    shown_at: Size
    findings: Sequence[str]
    controlled: bool  # by fewer dense steps
    plots: Sequence[str]
    measures: Sequence[Column]
    lines: Sequence[Line]
    albums: Sequence[MethodPictures]
    opened: int  # the album that is seen first


def write_report(folder: Path, out: Path | None = None, *, cases: int = CASES, force: bool = False) -> Path:
    """Writes the report of an evaluation and its plots. Returns where the report is.

    Args:
        folder: Of the evaluation, finished or not. The plots go to its folder `plots`.
        out: Where the report goes; None is `report.html` in the folder, in place of an older one.
        cases: How many pictures of each method to show, those farthest from dense.
        force: Overwrite `out`.
    """
    if cases < 1:
        raise invalid_value("cases", cases, "a whole number of at least 1", f"The default is {CASES}")
    run, path = read_results(folder), out or folder / "report.html"
    check_out(path, ending=".html", force=force or out is None)
    check_out_folder(folder / "plots")
    page = render_page(run, write_plots(run), cases)
    with atomic_write(path) as beside:
        beside.write_text(page, encoding="utf-8")
    return path


def render_page(run: Evaluation, plots: Sequence[Path], cases: int) -> str:
    embedding = embedding_for(run, cases)
    sections = [section_of(run, size, plots, cases, embedding) for size in run.plan.sizes]
    return load_template(Path(__file__).with_name("report.html")).render(
        name=Path(run.plan.model).name,
        plan=run.plan,
        sections=sections,
        brighter=BRIGHTER,
        look=look(),
        settings=settings_by_name(run),
        command=command_for(run),
    )


def section_of(run: Evaluation, size: Size, plots: Sequence[Path], cases: int, embedding: Embedding) -> Section:
    rows = [row for row in run.rows if row.size == size]
    rows.sort(key=lambda row: (not row.is_dense, -fmean(row.closeness.psnr or [0])))
    close = [row for row in rows if row.closeness.psnr]
    measures = filled(MEASURES, rows)
    mine = [path for path in plots if path.match(f"*-{format_size(size)}.svg")]
    return Section(
        size=size,
        shown_at=embedding.size(size),
        findings=findings(run, size),
        controlled=any(method_named(row.method).steps for row in close),
        plots=[data_uri("image/svg+xml", path.read_bytes()) for path in mine],
        measures=measures,
        lines=table_lines(rows, measures),
        albums=[method_pictures(run, row, cases, embedding) for row in close],
        opened=close.index(leading(run, size)) if close else 0,
    )


def table_lines(rows: Sequence[EvaluationRow], measures: Sequence[Column]) -> list[Line]:
    best = {measure.head: best_text(measure, rows) for measure in measures}

    def cell(row: EvaluationRow, measure: Column) -> Cell:
        text = measure.text(row)
        return Cell(text, best=not row.is_dense and text == best[measure.head])

    return [Line(title_of(row.method), colour_of(row), [cell(row, measure) for measure in measures]) for row in rows]


def best_text(measure: Column, rows: Sequence[EvaluationRow]) -> str | None:
    """The best of a column as it is written there; none where there is nothing to choose from."""
    values: list[Any] = [measure.read(row) for row in rows if not row.is_dense]
    values = [value for value in values if value is not None]
    return measure.form.format(min(values, key=measure.loss)) if len(values) > 1 else None
