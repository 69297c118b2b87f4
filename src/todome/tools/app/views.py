"""What is seen of runs, as HTML: made from views.html beside this file. Whatever a visitor typed is escaped there."""

import itertools
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ...reductions import Downsample, Reduction, as_tuple
from ..demo import BRIGHTER
from ..generate import Settings
from ..measuring.comparing import SAME
from ..pipelines import format_size
from .recipes import command, settings_again, snippet
from .session import Run, Session
from .worker import Progress

PSNR = "How close the pixels are to dense. Above some 40 dB differences are hard to see."
SSIM = "How alike structures are; 1 is the same."
LPIPS = "How different the pictures look to a network that was trained on people's judgement; 0 is the same."
SPEED = "How many times as fast as dense, the whole pipeline, without the previews."
MEMORY = "Memory of the GPU at its peak."
SAME_PICTURE = (
    "Both pictures are the same, bit for bit: nothing was reduced here. "
    "The automatic factor leaves small pictures dense; set a factor of 2 to see what it does."
)
PAPERS = (("ToDo", "https://arxiv.org/abs/2402.13573"), ("ToMe", "https://arxiv.org/abs/2303.17604"))


class Tile(NamedTuple):
    """A number that is shown large."""

    name: str
    value: str
    below: str
    about: str


class Row(NamedTuple):
    """A run in the chart."""

    number: int
    label: str
    bars: list[tuple[str, float, str]]


@cache
def macros() -> Any:
    loader = FileSystemLoader(Path(__file__).parent)
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return pages.get_template("views.html").module


def header(model: str, device: str) -> str:
    """The head of the page. Of a folder, visitors need not know more than its name."""
    return str(macros().header(Path(model).name if Path(model).exists() else model, device, PAPERS))


def empty() -> str:
    """What is seen before the first run: a grid in which every cell of four goes through its keys in its own order."""
    draw, orders = random.Random(0), list(itertools.permutations(range(4)))
    return str(macros().empty([[draw.choice(orders) for _ in range(12)] for _ in range(8)]))


def notice(text: str, kind: str = "error") -> str:
    """A sentence above the picture; none where there is nothing to say."""
    return str(macros().notice(text, kind)) if text else ""


def waiting(before: int, settings: Settings) -> str:
    said = f"{before} run{'s' * (before != 1)} of others before yours." if before else "Getting ready."
    return str(macros().running(said, [], settings.size, ""))


def running(event: Progress, settings: Settings, drawn_in: int | None) -> str:
    """Where a run is. `drawn_in` is the run that has the dense picture, if it need not be drawn."""
    name = titled(settings.reduction)
    said = "Drawing the dense picture." if event.dense else f"Drawing with {name}."
    if drawn_in is not None:
        said += f" The dense picture is that of run {drawn_in}."
    bars = [] if drawn_in is not None else [("dense", event.done if event.dense else event.steps, event.steps)]
    if settings.reduction is not None:
        bars.append((name, 0 if event.dense else event.done, event.steps))
    return str(macros().running(said, bars, settings.size, event.preview))


def stage(run: Run) -> str:
    return str(macros().stage(run, titled(run.asked.reduction), BRIGHTER))


def facts(run: Run) -> str:
    return str(macros().facts(run, finding(run), tiles(run), titled(run.asked.reduction)))


def finding(run: Run) -> str:
    """What came of a run, in a sentence."""
    if run.reduced is None or run.speedup is None:
        return f"The dense picture took {run.dense.seconds:.2f} seconds. Choose a method to compare with it."
    if run.closeness["psnr"] >= SAME:
        return SAME_PICTURE
    faster = (
        f"{run.speedup:.2f} times as fast as dense" if run.speedup >= 1 else f"slower than dense, {run.speedup:.2f}x"
    )
    return f"{titled(run.asked.reduction)} is {faster}, and {run.closeness['psnr']:.1f}\u00a0dB close to it."


def tiles(run: Run) -> list[Tile]:
    """The numbers of a run, as far as they are known."""
    again = "" if run.drawn_in == run.number else f" (from run {run.drawn_in})"
    dense = f"dense {run.dense.seconds:.2f} s{again}"
    if run.reduced is None:
        return [Tile("Time", f"{run.dense.seconds:.2f} s", "dense", SPEED), *memory(run)]
    found = [Tile("Speed-up", f"{run.speedup:.2f}x", f"{run.reduced.seconds:.2f} s, {dense}", SPEED)]
    for name, form, below, about in (
        ("psnr", "{:.1f} dB", "PSNR to dense, higher is closer", PSNR),
        ("ssim", "{:.4f}", "SSIM to dense, 1 is the same", SSIM),
        ("lpips", "{:.4f}", "LPIPS to dense, 0 is the same", LPIPS),
    ):
        if name in run.closeness:
            same = name == "psnr" and run.closeness[name] >= SAME
            found.append(Tile(name.upper(), "same" if same else form.format(run.closeness[name]), below, about))
    return [*found, *memory(run)]


def memory(run: Run) -> list[Tile]:
    used, dense = run.shot.gigabytes, run.dense.gigabytes
    if used is None or dense is None:
        return []
    return [Tile("Peak memory", f"{used:.2f} GB", f"dense {dense:.2f} GB" if run.reduced else "dense", MEMORY)]


def recipes(run: Run) -> str:
    settings, file = settings_again(run, run.shot), run.shot.file.name
    texts = command(settings, file), snippet(settings, file)
    return str(macros().recipes(run, titled(run.asked.reduction), run.shot.file.stem, *texts))


def chart(session: Session) -> str:
    """A pair of bars for each run, the newest first."""
    rows = []
    for run in session.runs:
        bars = [("of-dense", run.dense.seconds, "dense")]
        if run.reduced is not None:
            bars.append(("of-method", run.reduced.seconds, titled(run.asked.reduction)))
        rows.append(Row(run.number, f"{format_size(run.dense.made.size or ())}, {run.shot.made.steps} steps", bars))
    return str(macros().chart(rows, max(bar[1] for row in rows for bar in row.bars))) if rows else ""


def history(session: Session, current: int) -> str:
    return str(macros().history([(run, lines(run)) for run in session.runs], current)) if session.runs else ""


def lines(run: Run) -> list[str]:
    told = [titled(run.asked.reduction), format_size(run.dense.made.size or ())]
    if run.speedup is not None:
        close = run.closeness["psnr"]
        told += [f"{run.speedup:.2f}x", "same" if close >= SAME else f"{close:.1f} dB"]
    return told


def titled(reduction: Reduction | None) -> str:
    """A method and its setting, as people say it."""
    if reduction is None:
        return "dense"
    name = "ToMe" if not isinstance(reduction, Downsample) else "ToDo" if reduction.phase == "fixed" else "todome"
    levels = as_tuple(getattr(reduction, reduction.level_field))
    told = ", ".join(level if isinstance(level, str) else f"{level:.3g}" for level in levels)
    window = f", {reduction.start:.0%} to {reduction.stop:.0%}" if reduction.windowed else ""
    return f"{name} {told}{window}"
