"""What is seen of a run: how far it is, its pictures beside each other, the verdict, the snippet; and the last runs."""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import gradio as gr

from ..measuring.verdict import SAME, THRESHOLDS, grade_of, verdict
from ..pictures import BRIGHTER
from ..pipelines import format_size
from .controls import html, macros
from .drawing import Progress
from .presets import title_of
from .reproduce import command, snippet
from .runs import Pair, Run, Runs, thumbnail_of

FULL, DIFFERENCE = "full attention", f"difference x{BRIGHTER}"
CHANCE = "At this size the automatic factor leaves attention as it is: set the factor to 2."
Changes = dict[Any, Any]  # of the page: what its parts become


class View(NamedTuple):
    """Two pictures to compare, full attention to the left, and what the right one is."""

    left: Path
    right: Path
    title: str


def views(run: Run) -> list[View]:
    """All that can be looked at: full attention, the other methods, and where these differ; seed after seed."""
    found = []
    for full in run.full:
        seed = f", seed {full.asked.seed}" if len(run.full) > 1 else ""
        found.append(View(full.file, full.file, FULL + seed))
        for pair in run.pairs:
            if pair.full is full:
                title = title_of(pair.reduced.asked.reduction)
                found.append(View(full.file, pair.reduced.file, title + seed))
                found.append(View(full.file, pair.difference, f"{DIFFERENCE}, {title}{seed}"))
    return found


@dataclass(frozen=True)
class Results:
    """Places for results."""

    notice: gr.HTML
    progress: gr.HTML
    slider: gr.ImageSlider
    pictures: gr.Gallery
    verdict: gr.HTML
    snippet: gr.Code
    history: gr.Gallery
    forget: gr.Button
    shown: gr.State  # the run that is shown

    def of(self, run: Run, runs: Runs) -> Changes:
        """What is seen of a run."""
        all_views, at = views(run), min(1, len(run.pairs))
        return {
            self.notice: "",
            self.progress: "",
            self.slider: slider_with(all_views[at]),
            self.pictures: gr.Gallery([(str(view.right), view.title) for view in all_views], selected_index=at),
            self.verdict: verdict_of(run),
            self.snippet: snippet(run),
            self.shown: run,
            self.history: gr.Gallery(
                [(str(thumbnail_of(one.folder)), in_short(one)) for one in runs.kept],
                selected_index=next((at for at, one in enumerate(runs.kept) if one is run), None),
                visible=bool(runs.kept),
            ),
            self.forget: gr.Button(visible=bool(runs.kept)),
        }


def lay_out_results() -> Results:
    """Places for results."""
    places: dict[str, Any] = {"notice": html(elem_id="notice"), "progress": html(elem_id="progress")}
    with gr.Row(elem_id="seen"):
        with gr.Column(scale=3, min_width=300):
            places["slider"] = gr.ImageSlider(type="filepath", interactive=False, max_height=620, elem_id="slider")
        with gr.Column(scale=2, min_width=300):
            places["verdict"] = html(elem_id="verdict")
    places["pictures"] = gallery("Choose a picture", elem_id="pictures")
    places["history"] = gallery("Your runs", visible=False, elem_id="history")
    places["forget"] = gr.Button("Delete all runs", size="sm", visible=False)
    with gr.Accordion("In Python", open=False):
        places["snippet"] = gr.Code(language="python", label="picture.py", interactive=False, elem_id="snippet")
    places["shown"] = gr.State()
    return Results(**places)


def gallery(label: str, **options: Any) -> gr.Gallery:
    shown: dict[str, Any] = {"allow_preview": False, "interactive": False, "buttons": [], "fit_columns": False}
    return gr.Gallery(label=label, columns=8, height="auto", **shown, **options)


def slider_with(view: View) -> gr.ImageSlider:
    label = view.title if view.left == view.right else f"{FULL} | {view.title}"
    return gr.ImageSlider((str(view.left), str(view.right)), label=label)


def in_short(run: Run) -> str:
    """Such as "todome 2, 256x256, 1.4x"."""
    methods = list(dict.fromkeys(pair.reduced.asked.reduction for pair in run.pairs))
    facts = [", ".join(map(title_of, methods)) or FULL, format_size(run.full[0].settings.size or ())]
    speedup = run.speedup(methods[0]) if methods else None
    return ", ".join([*facts, *([f"{speedup:.1f}x"] if speedup else [])])


def verdict_of(run: Run) -> str:
    """What came of a run: in plain words, with the figures, the files and how to draw it again."""
    settings, several = run.result.settings, len(run.full) > 1
    facts = [format_size(settings.size or ()), f"{settings.steps} steps", run.result.sampler]
    facts += [f"guidance {settings.guidance:g}", f"seed {run.full[0].asked.seed}"]
    facts += ["from a picture"] if run.start else []
    rows = [] if several else [Row(FULL, "the reference", f"{run.full[0].seconds:.1f} s", "", "")]
    rows += [row_of(pair, several) for pair in run.pairs]
    files = [(view.right, view.title) for view in views(run)]
    again = "" if run.start else command(run.result.file.name)
    reduced = [pair.reduced.reduced for pair in run.pairs if pair.full is run.full[0]]
    said = (run.label, finding(run), run.full[0].asked, facts, rows if run.pairs else [])
    return macros().verdict(*said, files, THRESHOLDS, again, reduced)


def finding(run: Run) -> str:
    """The verdict on the first method; on several pictures it is about the one that is farthest off."""
    if not run.pairs:
        seconds = fmean(one.seconds for one in run.full)
        return f"Full attention took {seconds:.1f} seconds. Choose a method to compare with it."
    method = run.pairs[0].reduced.asked.reduction
    others = any(pair.reduced.asked.reduction != method for pair in run.pairs)
    worst = min(pair.closeness["psnr"] for pair in run.pairs_of(method))
    said = verdict(run.speedup(method) or 1.0, worst, title_of(method) if others else "")
    return f"{said}. {CHANCE}" if worst >= SAME and getattr(method, "factor", None) == "auto" else f"{said}."


class Row(NamedTuple):
    """A picture in the table: what it is, what its closeness means, and its figures."""

    name: str
    words: str
    seconds: str
    speed: str
    psnr: str


def row_of(pair: Pair, several: bool) -> Row:
    name = f"seed {pair.full.asked.seed}" if several else title_of(pair.reduced.asked.reduction)
    seconds = f"{pair.reduced.seconds:.1f} s"
    if pair.is_same:
        return Row(name, "nothing was reduced", seconds, "", "same")
    others = [
        f"{measure.upper()} {pair.closeness[measure]:.4f}" for measure in ("ssim", "lpips") if measure in pair.closeness
    ]
    words = ", ".join([grade_of(pair.closeness["psnr"]).short, *others])
    speed = f"{pair.full.seconds / pair.reduced.seconds:.2f}x"
    return Row(name, words, seconds, speed, f"{pair.closeness['psnr']:.1f} dB")


class RunProgress:
    """What is seen of a run while it is drawn: a bar, the time left, and the last preview."""

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None  # when the first step was done, and how many there were then
        self.preview = ""

    def html(self, now: Progress) -> str:
        self.preview = now.preview or self.preview
        done, steps = now.at * now.steps + now.done, now.steps * now.pictures
        if self.first is None and now.done:
            self.first = time.monotonic(), done
        said = f"Drawing with {title_of(now.drawn.reduction)}, seed {now.drawn.seed}."
        return progress_html(said, self.left(done, steps), done, steps, self.preview)

    def left(self, done: int, steps: int) -> float | None:
        """Seconds, at the pace of the steps since the first; None while there are none."""
        if self.first is None or done <= self.first[1]:
            return None
        return (time.monotonic() - self.first[0]) / (done - self.first[1]) * (steps - done)


def progress_html(said: str, left: float | None, done: int, steps: int, preview: str = "") -> str:
    told = "" if left is None else f"About {in_words(left)} left."
    return macros().progress(said, told, done, steps, preview)


def in_words(seconds: float) -> str:
    """Such as "12 seconds" or "3 minutes": no more digits than an estimate has."""
    if seconds < 1.5:
        return "a second"
    return f"{round(seconds)} seconds" if seconds < 100 else f"{round(seconds / 60)} minutes"


def notice(text: str, kind: str = "error") -> str:
    """Sentence above the picture; nothing where the text is empty."""
    return macros().notice(text, kind) if text else ""
