"""HTML of runs, from the template views.html beside this file, which escapes whatever a visitor typed."""

import itertools
import random
from pathlib import Path
from typing import Any, NamedTuple

from ...reductions import Downsample, Reduction, as_tuple
from ..generate import Settings
from ..measuring.comparing import SAME
from ..measuring.measure_texts import LPIPS, PSNR, SSIM
from ..pictures import BRIGHTER
from ..pipelines import format_size
from ..templates import load_template
from .reproduce import command, settings_to_repeat, snippet
from .session import Run, Session
from .worker import Progress

SPEED = "How many times as fast as dense, the whole pipeline, without the previews."
MEMORY = "Memory of the GPU at its peak."
SAME_PICTURE = (
    "Both pictures are the same, bit for bit: nothing was reduced here. "
    "The automatic factor leaves small pictures dense; set a factor of 2 to see what it does."
)
PAPERS = (("ToDo", "https://arxiv.org/abs/2402.13573"), ("ToMe", "https://arxiv.org/abs/2303.17604"))


class Tile(NamedTuple):
    """Number in large type, with a name above it and a line below."""

    name: str
    value: str
    below: str
    about: str


class ChartRow(NamedTuple):
    """Row of the chart: the bars of one run."""

    number: int
    label: str
    bars: list[tuple[str, float, str]]


def macros() -> Any:
    return load_template(Path(__file__).with_name("views.html")).module


def header(model: str, device: str) -> str:
    """Head of the page. Of a model's folder visitors see the name alone."""
    return str(macros().header(Path(model).name if Path(model).exists() else model, device, PAPERS))


def empty() -> str:
    """Drawing in place of the first run: a grid in which every cell of four goes through its keys in its own order."""
    draw, orders = random.Random(0), list(itertools.permutations(range(4)))
    return str(macros().empty([[draw.choice(orders) for _ in range(12)] for _ in range(8)]))


def notice(text: str, kind: str = "error") -> str:
    """Sentence above the picture; nothing where the text is empty."""
    return str(macros().notice(text, kind)) if text else ""


def waiting(before: int, settings: Settings) -> str:
    said = f"{before} run{'s' * (before != 1)} of others before yours." if before else "Getting ready."
    return str(macros().running(said, [], settings.size, ""))


def running(event: Progress, settings: Settings, drawn_in: int | None) -> str:
    """Progress of a run. `drawn_in` is the run that has the dense picture, if it need not be drawn."""
    name = title_of(settings.reduction)
    said = "Drawing the dense picture." if event.dense else f"Drawing with {name}."
    if drawn_in is not None:
        said += f" The dense picture is that of run {drawn_in}."
    bars = [] if drawn_in is not None else [("dense", event.done if event.dense else event.steps, event.steps)]
    if settings.reduction is not None:
        bars.append((name, 0 if event.dense else event.done, event.steps))
    return str(macros().running(said, bars, settings.size, event.preview))


def stage(run: Run) -> str:
    return str(macros().stage(run, title_of(run.asked.reduction), BRIGHTER))


def facts(run: Run) -> str:
    return str(macros().facts(run, finding(run), tiles(run), title_of(run.asked.reduction)))


def finding(run: Run) -> str:
    """Result of a run, in a sentence."""
    if run.reduced is None or run.speedup is None:
        return f"The dense picture took {run.dense.seconds:.2f} seconds. Choose a method to compare with it."
    if run.closeness["psnr"] >= SAME:
        return SAME_PICTURE
    faster = (
        f"{run.speedup:.2f} times as fast as dense" if run.speedup >= 1 else f"slower than dense, {run.speedup:.2f}x"
    )
    return f"{title_of(run.asked.reduction)} is {faster}, and {run.closeness['psnr']:.1f}\u00a0dB close to it."


def tiles(run: Run) -> list[Tile]:
    """Numbers of a run, as far as they were measured."""
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
    used, dense = run.result.gigabytes, run.dense.gigabytes
    if used is None or dense is None:
        return []
    return [Tile("Peak memory", f"{used:.2f} GB", f"dense {dense:.2f} GB" if run.reduced else "dense", MEMORY)]


def recipes(run: Run) -> str:
    settings, file = settings_to_repeat(run, run.result), run.result.file.name
    texts = command(settings, file), snippet(settings, file)
    return str(macros().recipes(run, title_of(run.asked.reduction), run.result.file.stem, *texts))


def chart(session: Session) -> str:
    """Chart with a pair of bars for each run, the newest first."""
    rows = []
    for run in session.runs:
        bars = [("of-dense", run.dense.seconds, "dense")]
        if run.reduced is not None:
            bars.append(("of-method", run.reduced.seconds, title_of(run.asked.reduction)))
        label = f"{format_size(run.dense.settings.size or ())}, {run.result.settings.steps} steps"
        rows.append(ChartRow(run.number, label, bars))
    return str(macros().chart(rows, max(bar[1] for row in rows for bar in row.bars))) if rows else ""


def history(session: Session, current: int) -> str:
    return str(macros().history([(run, history_facts(run)) for run in session.runs], current)) if session.runs else ""


def history_facts(run: Run) -> list[str]:
    facts = [title_of(run.asked.reduction), format_size(run.dense.settings.size or ())]
    if run.speedup is not None:
        close = run.closeness["psnr"]
        facts += [f"{run.speedup:.2f}x", "same" if close >= SAME else f"{close:.1f} dB"]
    return facts


def title_of(reduction: Reduction | None) -> str:
    """Name of a method with its setting, such as "todome 2"."""
    if reduction is None:
        return "dense"
    name = "ToMe" if not isinstance(reduction, Downsample) else "ToDo" if reduction.phase == "fixed" else "todome"
    levels = as_tuple(getattr(reduction, reduction.level_field))
    setting = ", ".join(level if isinstance(level, str) else f"{level:.3g}" for level in levels)
    window = f", {reduction.start:.0%} to {reduction.stop:.0%}" if reduction.windowed else ""
    return f"{name} {setting}{window}"
