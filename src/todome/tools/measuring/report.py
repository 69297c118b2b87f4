"""`todome report`: an evaluation as one HTML file that needs nothing else, made from report.html beside this file."""

import math
import shlex
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import fields
from io import BytesIO
from operator import neg
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from PIL import Image

from ...errors import invalid_value
from ..files import atomic_write
from ..pictures import check_out, difference
from ..pipelines import Size, format_size
from .methods import method_named
from .plots import SERIES, compared, series_of, write_plots
from .runs import Evaluation, Row, read_results
from .tables import mean, worst

CASES = 12  # of each method
BRIGHTER = 8  # times, so that differences can be seen
WIDEST = 768  # pixels of a picture in the page
EXACT, MOST = 6e6, 45e6  # pixels of all pictures that fit in 20 MB: without loss, and as WebP of this quality
QUALITY = 92
PSNR = "How close the pixels are to dense. Above some 40 dB differences are hard to see; 100 is the same picture."
LPIPS = "How different the pictures look to a network that was trained on people's judgement; 0 is the same."
DETAIL = "Fine detail as a share of the dense picture's: less than 1 is softer, more is grainier."
FID = "How far the pictures are, as a set, from the dense ones, or from the real ones that the settings name."


class Measure(NamedTuple):
    """A column of the table."""

    head: str
    about: str
    read: Callable[[Row], float | None]
    form: str
    loss: Callable[[float], float]  # least for the best


MEASURES = (
    Measure("speed-up", "How many times as fast as dense, the whole pipeline.", lambda r: r.speedup, "{:.2f}x", neg),
    Measure("s / picture", "Seconds for one picture, the whole pipeline.", lambda r: r.seconds, "{:.3f}", abs),
    Measure("GB / picture", "Memory of the GPU at its peak, per picture.", lambda r: r.gigabytes, "{:.2f}", abs),
    Measure("PSNR, dB", PSNR, lambda r: mean(r.closeness.psnr), "{:.1f}", neg),
    Measure(
        "worst 5 %", "PSNR of the worst 5 %, at least one picture.", lambda r: worst(r.closeness.psnr), "{:.1f}", neg
    ),
    Measure("SSIM", "How alike structures are; 1 is the same.", lambda r: mean(r.closeness.ssim), "{:.3f}", neg),
    Measure("MS-SSIM", "SSIM at several scales; 1 is the same.", lambda r: mean(r.closeness.ms_ssim), "{:.3f}", neg),
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


class Case(NamedTuple):
    """A picture beside the dense one, each as a data URI."""

    prompt: str
    facts: Sequence[str]
    dense: str
    picture: str
    difference: str


class Album(NamedTuple):
    """The pictures of a method, the worst first."""

    title: str
    colour: str
    folder: str
    total: int  # pictures, of which these are some
    cases: Sequence[Case]


class Section(NamedTuple):
    """Everything about one size."""

    size: Size
    shown_at: Size
    findings: Sequence[str]
    controlled: bool  # by fewer dense steps
    plots: Sequence[str]
    measures: Sequence[Measure]
    lines: Sequence[Line]
    albums: Sequence[Album]
    opened: int  # the album that is seen first


class Embedding(NamedTuple):
    """How pictures are put into the page, so that it stays small enough to be sent around."""

    scale: float
    lossless: bool

    def size(self, size: Size) -> Size:
        scale = self.scale * min(1, WIDEST / size[0])
        return round(size[0] * scale), round(size[1] * scale)

    def uri(self, picture: Image.Image) -> str:
        size, buffer = self.size(picture.size), BytesIO()
        smaller = picture if size == picture.size else picture.resize(size, Image.Resampling.LANCZOS)
        smaller.save(buffer, "WEBP", lossless=self.lossless, quality=QUALITY)
        return data_uri("image/webp", buffer.getvalue())


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
    page = rendered(run, write_plots(run), cases)
    with atomic_write(path) as beside:
        beside.write_text(page, encoding="utf-8")
    return path


def rendered(run: Evaluation, plots: Sequence[Path], cases: int) -> str:
    loader = FileSystemLoader(Path(__file__).parent)
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    embedding = embedding_for(run, cases)
    sections = [section_of(run, size, plots, cases, embedding) for size in run.plan.sizes]
    return pages.get_template("report.html").render(
        name=Path(run.plan.model).name,
        plan=run.plan,
        sections=sections,
        brighter=BRIGHTER,
        settings=settings_of(run),
        command=command_for(run),
    )


def embedding_for(run: Evaluation, cases: int) -> Embedding:
    full = Embedding(1, lossless=False)
    pixels = [3 * min(cases, len(row.closeness.psnr)) * math.prod(full.size(row.size)) for row in run.rows]
    return Embedding(min(1, math.sqrt(MOST / max(1, sum(pixels)))), lossless=sum(pixels) <= EXACT)


def section_of(run: Evaluation, size: Size, plots: Sequence[Path], cases: int, embedding: Embedding) -> Section:
    rows = [row for row in run.rows if row.size == size]
    rows.sort(key=lambda row: (not row.is_dense, -fmean(row.closeness.psnr or [0])))
    close = [row for row in rows if row.closeness.psnr]
    measures = [measure for measure in MEASURES if any(measure.read(row) is not None for row in rows)]
    mine = [path for path in plots if path.match(f"*-{format_size(size)}.svg")]
    return Section(
        size=size,
        shown_at=embedding.size(size),
        findings=findings(run, size),
        controlled=any(method_named(row.method).steps for row in close),
        plots=[data_uri("image/svg+xml", path.read_bytes()) for path in mine],
        measures=measures,
        lines=table(rows, measures),
        albums=[album(run, row, cases, embedding) for row in close],
        opened=close.index(leading(run, size)) if close else 0,
    )


def leading(run: Evaluation, size: Size) -> Row:
    """The row that the report is about: todome's first one, else the first that is not the control."""
    order = list(SERIES.values())
    return min(compared(run, size), key=lambda row: order.index(series_of(method_named(row.method))))


def findings(run: Evaluation, size: Size) -> list[str]:
    """What was found at a size, in sentences, the most important first."""
    rows, close = [row for row in run.rows if row.size == size], compared(run, size)
    undrawn = [title_of(name) for name in run.plan.methods_at(size) if name not in {row.method for row in rows}]
    waiting = [title_of(row.method) for row in rows if not row.is_dense and row not in close]
    said = result(run, size) if close else ["There is nothing to compare with dense at this size yet."]
    said += [f"Not drawn yet: {'; '.join(undrawn)}."] if undrawn else []
    return said + ([f"Not compared with dense yet: {'; '.join(waiting)}."] if waiting else [])


def result(run: Evaluation, size: Size) -> list[str]:
    """The leading method, and the control that is nearest to it in speed."""
    row = leading(run, size)
    psnr = row.closeness.psnr
    said = f"{title_of(row.method)} draws these pictures {row.speedup:.2f} times as fast as dense and is "
    said += f"{fmean(psnr):.1f}\u00a0dB close to it; its worst picture is {min(psnr):.0f}\u00a0dB."
    controls = [other for other in compared(run, size) if other is not row and method_named(other.method).steps]
    if not controls:
        return [said]
    control = min(controls, key=lambda other: abs(other.speedup - row.speedup))
    taken = f"Dense with {control.steps} of {run.plan.steps} steps is {control.speedup:.2f} times as fast"
    return [said, f"{taken} and {fmean(control.closeness.psnr):.1f}\u00a0dB close: the control, which anyone can have."]


def title_of(method: str) -> str:
    return method_named(method).title


def colour_of(row: Row) -> str:
    return "none" if row.is_dense else series_of(method_named(row.method)).colour


def table(rows: Sequence[Row], measures: Sequence[Measure]) -> list[Line]:
    best = {measure: best_text(measure, rows) for measure in measures}

    def cell(row: Row, measure: Measure) -> Cell:
        text = text_of(measure, row)
        return Cell(text, best=not row.is_dense and text == best[measure])

    return [Line(title_of(row.method), colour_of(row), [cell(row, measure) for measure in measures]) for row in rows]


def text_of(measure: Measure, row: Row) -> str:
    value = measure.read(row)
    return "" if value is None else measure.form.format(value)


def best_text(measure: Measure, rows: Sequence[Row]) -> str | None:
    """The best of a column as it is written there; none where there is nothing to choose from."""
    values = [value for row in rows if not row.is_dense and (value := measure.read(row)) is not None]
    return measure.form.format(min(values, key=measure.loss)) if len(values) > 1 else None


def album(run: Evaluation, row: Row, cases: int, embedding: Embedding) -> Album:
    close = row.closeness
    order = sorted(range(len(close.psnr)), key=lambda i: close.psnr[i])[:cases]
    folder = run.picture(row.size, row.method, 0).parent.relative_to(run.folder).as_posix()
    shown_cases = [case(run, row, i, embedding) for i in order]
    return Album(title_of(row.method), colour_of(row), folder, len(close.psnr), shown_cases)


def case(run: Evaluation, row: Row, i: int, embedding: Embedding) -> Case:
    dense, picture = opened(run.picture(row.size, "dense", i)), opened(run.picture(row.size, row.method, i))
    facts = [f"{row.closeness.psnr[i]:.1f} dB", f"seed {run.plan.seed + i}"]
    if row.closeness.lpips:
        facts.insert(1, f"LPIPS {row.closeness.lpips[i]:.4f}")
    pictures = (dense, picture, difference(picture, dense, BRIGHTER))
    return Case(run.plan.prompt(i), facts, *map(embedding.uri, pictures))


def opened(path: Path) -> Image.Image:
    try:
        with Image.open(path) as picture:
            return picture.convert("RGB")
    except OSError:
        allowed = "the PNG file that the evaluation drew"
        raise invalid_value(
            "picture", str(path), allowed, "It is missing or broken: evaluate again", FileNotFoundError
        ) from None


def data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"


def settings_of(run: Evaluation) -> dict[str, str]:
    """The plan and the machine, each thing by its name. The prompts have a place of their own."""
    plan = {field.name: getattr(run.plan, field.name) for field in fields(run.plan) if field.name != "prompts"}
    left = {"guidance": "the model's", "scheduler": "the model's"}
    given = {name: left.get(name) if value is None else value for name, value in plan.items()}
    given["sizes"] = [format_size(size) for size in run.plan.sizes]
    return {name: told(value) for name, value in {**given, **run.about}.items() if value not in (None, {})}


def told(value: Any) -> str:
    if isinstance(value, dict):
        return told([f"{name} {told(one)}" for name, one in value.items()])
    return "; ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def command_for(run: Evaluation) -> str | None:
    """What to type to evaluate the same again; None where a paper's table chose other methods for each size."""
    plan = run.plan
    if plan.only:
        return None
    words = ["todome", "eval", plan.model, "--prompts", "prompts.txt", "--methods", *plan.methods, "--sizes"]
    words += [format_size(size) for size in plan.sizes]
    for option in ("pictures", "seed", "steps", "guidance", "scheduler", "batch", "real"):
        value = getattr(plan, option)
        words += [] if value is None else [f"--{option}", str(value)]
    if plan.real is None and any(row.fid is not None for row in run.rows):
        words.append("--fid")
    return shlex.join(words)
