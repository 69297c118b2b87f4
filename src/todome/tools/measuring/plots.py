"""Plots of an evaluation: speed-up against closeness to dense, and how far the worst pictures fall behind."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from ...levers.downsample import Downsample
from ..files import atomic_write
from ..pipelines import Size, format_size
from .methods import Method, method_named
from .runs import Evaluation, EvaluationRow

styled = mpl.rc_context({"svg.hashsalt": "todome", "font.size": 10})
CORNERS = ((6, 5), (6, -5), (-6, 5), (-6, -5))  # where a label may stand, in points from its own
STROKES = ("-", "--", ":", "-.")  # of the first, second, ... method of a series
FEW = 40  # pictures that can be told apart along a line


class Series(NamedTuple):
    """Methods of one kind."""

    label: str
    colour: str
    marker: str


SERIES = {
    "dither": Series("todome, dithered", "#0b6b57", "o"),
    "random": Series("todome, random", "#5cc0a6", "o"),
    "fixed": Series("ToDo, fixed", "#bf8700", "s"),
    "merge": Series("ToMe", "#cf222e", "^"),
    "peers": Series("packages of others", "#8250df", "v"),
    "steps": Series("fewer dense steps", "#57606a", "D"),
}


def series_of(method: Method) -> Series:
    if method.peers:
        return SERIES["peers"]
    if method.plan is not None:
        return SERIES["dither"]
    if method.reduction is None:
        return SERIES["steps"]
    return SERIES[method.reduction.phase if isinstance(method.reduction, Downsample) else "merge"]


class Point(NamedTuple):
    """A method in the plane of speed and closeness."""

    speedup: float
    psnr: float
    label: str


def compared_rows(run: Evaluation, size: Size) -> list[EvaluationRow]:
    """The rows of a size that have been compared with dense."""
    return [row for row in run.rows if row.size == size and row.closeness.psnr]


@styled
def pareto(run: Evaluation, size: Size) -> Figure:
    """Speed-up over dense against PSNR to dense. The methods up and to the right of the control are worth having."""
    figure, axes = page("speed-up over dense", "PSNR to the dense picture, dB (higher is closer)")
    points: dict[Series, list[Point]] = {series: [] for series in SERIES.values()}
    for row in compared_rows(run, size):
        method = method_named(row.method)
        label = f"{method.steps} steps" if method.steps else method.title
        points[series_of(method)].append(Point(row.speedup, fmean(row.closeness.psnr), label))
    for series, mine in points.items():
        if mine:
            line = "-" if series is SERIES["steps"] else "none"
            xs, ys, _ = zip(*sorted(mine), strict=True)
            axes.plot(xs, ys, linestyle=line, linewidth=0.8, color=series.colour, marker=series.marker, label=series[0])
    axes.axvline(1, color="#8c959f", linewidth=0.8, linestyle=(0, (4, 4)), zorder=1)
    axes.xaxis.set_major_formatter("{x:g}x")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    place_labels(figure, axes, points)
    return figure


@styled
def worst_cases(run: Evaluation, size: Size) -> Figure:
    """PSNR of every picture, the worst first: a method that fails on some drops at the left."""
    figure, axes = page("pictures, from the worst to the best", "PSNR to the dense picture, dB (higher is closer)")
    met: dict[Series, int] = dict.fromkeys(SERIES.values(), 0)
    for row in compared_rows(run, size):
        method, values = method_named(row.method), sorted(row.closeness.psnr)
        series = series_of(method)
        stroke, marker = STROKES[met[series] % len(STROKES)], series.marker if len(values) <= FEW else None
        shares = [100 * (i + 0.5) / len(values) for i in range(len(values))]
        axes.plot(shares, values, stroke, color=series.colour, marker=marker, markersize=4, label=method.title)
        met[series] += 1
    axes.set_xlim(0, 100)
    axes.xaxis.set_major_formatter("{x:g} %")
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def page(across: str, up: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6, 4.4), layout="constrained", facecolor="none")
    axes = figure.add_subplot(facecolor="none")
    axes.set(xlabel=across, ylabel=up)
    axes.grid(color="#d0d7de", linewidth=0.6)
    axes.margins(x=0.14, y=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def place_labels(figure: Figure, axes: Axes, points: dict[Series, list[Point]]) -> None:
    """Each label beside its point, at the first corner where it covers nothing."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()  # only then is the layout known
    spots = [axes.transData.transform(point[:2]) for mine in points.values() for point in mine]
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in spots]
    for series, mine in points.items():
        for x, y, text in mine:
            label = axes.annotate(text, (x, y), (0, 0), textcoords="offset points", fontsize=9, color=series.colour)
            label.set_in_layout(False)
            for across, up in CORNERS:
                label.xyann = across, up
                label.set(ha="left" if across > 0 else "right", va="bottom" if up > 0 else "top")
                if not label.get_window_extent(renderer).count_overlaps(taken):
                    break
            taken.append(label.get_window_extent(renderer))


def write_plots(run: Evaluation) -> list[Path]:
    """Every plot as SVG and as PNG in RUN/plots; none of a size at which nothing has been compared."""
    folder, paths = run.folder / "plots", []
    for size in dict.fromkeys(row.size for row in run.rows if row.closeness.psnr):
        folder.mkdir(exist_ok=True)
        for name, draw in (("pareto", pareto), ("worst-cases", worst_cases)):
            paths += save_figure(draw(run, size), folder / f"{name}-{format_size(size)}")
    return paths


@styled
def save_figure(figure: Figure, stem: Path) -> Sequence[Path]:
    """As SVG, see-through and the same bytes for the same numbers; and as PNG on white."""
    svg, png = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
    with atomic_write(svg) as beside:
        figure.savefig(beside, format="svg", metadata={"Date": None})
    with atomic_write(png) as beside:
        figure.savefig(beside, format="png", dpi=200, facecolor="white")
    return svg, png
