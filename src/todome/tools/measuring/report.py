"""`todome report`: an evaluation as one HTML file that needs nothing else, made from report.html beside this file."""

import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from statistics import fmean
from typing import Any

from ...errors import invalid_value
from ..files import atomic_write, check_out, check_out_folder
from ..pictures import BRIGHTER, data_uri
from ..pipelines import Size, format_size
from ..templates import load_template, look
from .methods import method_named
from .plots import SERIES, compared_rows, series_of, write_plots
from .report_pictures import Embedding, compared_pictures, embedding_for
from .runs import Evaluation, EvaluationRow, file_name, read_results
from .tables import MEASURES, Column, filled, title
from .verdict import verdict

CASES = 12  # of each method
NOTHING_TO_COMPARE = "There is nothing to compare with full attention (dense) at this size yet."


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
    return load_template(Path(__file__).with_name("report.html")).render(
        name=Path(run.plan.model).name,
        plan=run.plan,
        sections=[section_of(run, size, plots, cases, embedding) for size in run.plan.sizes],
        brighter=BRIGHTER,
        look=look(),
        settings=settings_by_name(run),
        command=command_for(run),
        title=title,
        colour=colour_of,
        file_name=file_name,
    )


def section_of(run: Evaluation, size: Size, plots: Sequence[Path], cases: int, embedding: Embedding) -> dict[str, Any]:
    """Everything about one size."""
    rows = [row for row in run.rows if row.size == size]
    rows.sort(key=lambda row: (not row.is_dense, -fmean(row.closeness.psnr or [0])))
    close = [row for row in rows if row.closeness.psnr]
    measures = filled(MEASURES, rows)
    mine = [path for path in plots if path.match(f"*-{format_size(size)}.svg")]
    return {
        "size": size,
        "shown_at": embedding.size(size),
        "findings": findings(run, size),
        "controlled": any(method_named(row.method).steps for row in close),
        "plots": [data_uri("image/svg+xml", path.read_bytes()) for path in mine],
        "measures": measures,
        "best": {measure.head: best_text(measure, rows) for measure in measures},
        "rows": rows,
        "albums": [(row, compared_pictures(run, row, cases, embedding)) for row in close],
        "opened": close.index(leading(run, size)) if close else 0,
    }


def best_text(measure: Column, rows: Sequence[EvaluationRow]) -> str | None:
    """The best of a column as it is written there; none where there is nothing to choose from."""
    values: list[Any] = [measure.read(row) for row in rows if not row.is_dense]
    values = [value for value in values if value is not None]
    return measure.form.format(min(values, key=measure.loss)) if len(values) > 1 else None


def colour_of(row: EvaluationRow) -> str:
    return "none" if row.is_dense else series_of(method_named(row.method)).colour


def leading(run: Evaluation, size: Size) -> EvaluationRow:
    """The row that the report is about: todome's first one, else the first that is not the control."""
    order = list(SERIES.values())
    return min(compared_rows(run, size), key=lambda row: order.index(series_of(method_named(row.method))))


def findings(run: Evaluation, size: Size) -> list[str]:
    """What was found at a size, in sentences, the most important first."""
    rows, close = [row for row in run.rows if row.size == size], compared_rows(run, size)
    undrawn = [
        method_named(name).title for name in run.plan.methods_at(size) if name not in {row.method for row in rows}
    ]
    waiting = [title(row) for row in rows if not row.is_dense and row not in close]
    said = main_result(run, size) if close else [NOTHING_TO_COMPARE]
    said += [f"Not drawn yet: {'; '.join(undrawn)}."] if undrawn else []
    return said + ([f"Not compared with full attention yet: {'; '.join(waiting)}."] if waiting else [])


def main_result(run: Evaluation, size: Size) -> list[str]:
    """The leading method, and the control that is nearest to it in speed."""
    row = leading(run, size)
    psnr = row.closeness.psnr
    said = f"{verdict(row.speedup, fmean(psnr), title(row))}. To full attention (dense) it is "
    said += f"{fmean(psnr):.1f}\u00a0dB close on average, and {min(psnr):.0f}\u00a0dB in its worst picture."
    controls = [other for other in compared_rows(run, size) if other is not row and method_named(other.method).steps]
    if not controls:
        return [said]
    control = min(controls, key=lambda other: abs(other.speedup - row.speedup))
    taken = f"Full attention with {control.steps} of {run.plan.steps} steps is {control.speedup:.2f}x as fast"
    return [said, f"{taken} and {fmean(control.closeness.psnr):.1f}\u00a0dB close: the control, which anyone can have."]


def settings_by_name(run: Evaluation) -> dict[str, str]:
    """The plan and the machine, each thing by its name. The prompts have a place of their own."""
    plan = {field.name: getattr(run.plan, field.name) for field in fields(run.plan) if field.name != "prompts"}
    left = {"guidance": "the model's", "scheduler": "the model's"}
    given = {name: left.get(name) if value is None else value for name, value in plan.items()}
    given["sizes"] = [format_size(size) for size in run.plan.sizes]
    return {name: as_text(value) for name, value in {**given, **run.about}.items() if value not in (None, {})}


def as_text(value: Any) -> str:
    if isinstance(value, dict):
        return as_text([f"{name} {as_text(one)}" for name, one in value.items()])
    return "; ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def command_for(run: Evaluation) -> str | None:
    """What to type to evaluate the same again; None where a paper's table chose other methods for each size."""
    plan = run.plan
    if plan.only:
        return None
    words = ["todome", "eval", plan.model, "--prompts", "prompts.txt", "--methods", *plan.methods, "--size"]
    words += [format_size(size) for size in plan.sizes]
    words += [word for lora in plan.loras for word in ("--lora", lora)]
    for option in ("vae", "pictures", "seed", "steps", "guidance", "scheduler", "batch", "real"):
        value = getattr(plan, option)
        words += [] if value is None else [f"--{option}", str(value)]
    if plan.real is None and any(row.fid is not None for row in run.rows):
        words.append("--fid")
    return shlex.join(words)
