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
from .form import Order
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
                found.append(View(full.file, pair.difference, f"{title}, {DIFFERENCE}{seed}"))
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
            **self.list_of(runs, run),
        }

    def list_of(self, runs: Runs, shown: Run | None = None) -> Changes:
        """The last runs."""
        kept = list(runs.kept)
        at = next((at for at, one in enumerate(kept) if one is shown), None)
        thumbnails = [(str(thumbnail_of(one.folder)), in_short(one)) for one in kept]
        return {
            self.history: gr.Gallery(thumbnails, selected_index=at, visible=bool(kept)),
            self.forget: gr.Button(visible=bool(kept)),
        }


def lay_out_results(example: Run) -> Results:
    """Places for results, with the example in them."""
    first = views(example)
    places: dict[str, Any] = {"notice": html(elem_id="notice"), "progress": html(elem_id="progress")}
    with gr.Row(elem_id="seen"):
        with gr.Column(scale=3, min_width=300):
            pair = str(first[1].left), str(first[1].right)
            places["slider"] = gr.ImageSlider(
                pair, label=label_of(first[1]), type="filepath", interactive=False, max_height=620, elem_id="slider"
            )
        with gr.Column(scale=2, min_width=300):
            places["verdict"] = html(verdict_of(example), elem_id="verdict")
    places["pictures"] = gallery([(str(view.right), view.title) for view in first], "Choose a picture", "pictures")
    places["history"] = gallery([], "Your runs", "history", visible=False)
    places["forget"] = gr.Button("Delete all runs", size="sm", visible=False, elem_id="forget")
    with gr.Accordion("In Python", open=False):
        code = snippet(example)
        places["snippet"] = gr.Code(code, language="python", label="picture.py", interactive=False, elem_id="snippet")
    places["shown"] = gr.State(example)
    return Results(**places)


def gallery(value: list[Any], label: str, name: str, **options: Any) -> gr.Gallery:
    shown: dict[str, Any] = {"allow_preview": False, "interactive": False, "buttons": [], "fit_columns": False}
    return gr.Gallery(value, label=label, columns=8, height="auto", elem_id=name, **shown, **options)


def slider_with(view: View) -> gr.ImageSlider:
    return gr.ImageSlider((str(view.left), str(view.right)), label=label_of(view))


def label_of(view: View) -> str:
    return view.title if view.left == view.right else f"{FULL} | {view.title}"


def chosen_view(run: Run, event: gr.SelectData) -> gr.ImageSlider | None:
    """The view that was chosen in the gallery; None where there is no such one."""
    found = next((view for at, view in enumerate(views(run)) if at == event.index), None)
    return None if found is None else slider_with(found)


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

    def __init__(self, order: Order) -> None:
        self.pictures = order.pictures()
        self.first: tuple[float, int] | None = None  # when the first step was done, and how many there were then
        self.preview = ""

    def html(self, now: Progress) -> str:
        self.preview = now.preview or self.preview
        done, steps = now.at * now.steps + now.done, now.steps * len(self.pictures)
        if self.first is None and now.done:
            self.first = time.monotonic(), done
        drawn = self.pictures[now.at]
        said = f"Drawing with {title_of(drawn.reduction)}, seed {drawn.seed}."
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
