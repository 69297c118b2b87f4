"""Events of the page: what happens when one draws, stops, looks at another picture or run, or sends a picture."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from ...levers.plan import Plan
from ..pipelines import size_step
from .controls import HIDDEN, QUICK, Controls, html, lay_out_controls, macros
from .drawing import Failed, Finished, Job, Progress, Worker
from .form import Form, Offer
from .presets import first_form, token_pixels
from .results import Changes, Results, RunProgress, lay_out_results, notice, slider_with, views
from .runs import Run, Runs, load_example
from .start import Start, save_start
from .tune_tab import DRAW, TUNE, TuneTab, lay_out_tune

STOPPED = "Stopped. Nothing of this run is kept."
GONE = "This run is no longer kept."
FORGOTTEN = "All runs and pictures are deleted."
NO_PICTURE = "Your picture to start from is no longer kept. Choose it again, or remove it."
PAPERS = (("ToDo", "https://arxiv.org/abs/2402.13573"), ("ToMe", "https://arxiv.org/abs/2303.17604"))
ONE_AT_A_TIME: dict[str, Any] = {"concurrency_id": "model", "concurrency_limit": 1, **HIDDEN}
WAITING = """() => ["", '<p class="hint" role="status">It is drawn as soon as the runs before it are.</p>']"""
TO_RESULTS = """() => {
  const results = document.getElementById("results"), top = results.getBoundingClientRect().top;
  if (top < -80 || top > window.innerHeight / 2) results.scrollIntoView();
}"""


def build(worker: Worker, runs: Runs, offer: Offer) -> gr.Blocks:
    """The page.

    Args:
        worker: Draws.
        runs: Keeps what was drawn.
        offer: What can be asked for.
    """
    model, pipe = offer.base.model, worker.pipe
    shown = Path(model).name if Path(model).exists() else model
    with gr.Blocks(title="todome", analytics_enabled=False, fill_width=True) as page:
        html(macros().header(shown, str(pipe.device), PAPERS))
        start, plan = gr.State(), gr.State()
        with gr.Tabs(elem_id="tabs") as tabs:
            with gr.Tab("Draw", id=DRAW), gr.Row(elem_classes="bench"):
                with gr.Column(elem_classes="controls", min_width=0):
                    controls = lay_out_controls(first_form(pipe, offer), offer, size_step(pipe))
                with gr.Column(elem_id="results", min_width=0):
                    results = lay_out_results()
            with gr.Tab("Tune", id=TUNE):
                tuning = lay_out_tune(model)
        controls.connect(token_pixels(pipe))
        Page(worker, runs, load_example(runs.root), offer, controls, results, start, plan).connect(page)
        TuneTab(worker, offer, runs.root, tuning, controls, plan, tabs).connect(page, ONE_AT_A_TIME)
    return page


@dataclass(frozen=True)
class Page:
    """The parts of the page, and what each event makes of them."""

    worker: Worker
    runs: Runs
    example: Run
    offer: Offer
    controls: Controls
    results: Results
    start: gr.State  # the picture to start from
    plan: gr.State  # to draw with

    def connect(self, page: gr.Blocks) -> None:
        controls, results, form = self.controls, self.results, list(self.controls.form)
        places = list(vars(results).values())
        sent, told = [self.start, self.plan, *form], [results.notice, results.progress]
        both = [self.start, self.plan, controls.uploaded]
        begun = [controls.draw.click, controls.form.prompt.submit, controls.compare.click]
        gr.on(begun, None, None, told, js=WAITING, **QUICK)
        gr.on(begun, None, js=TO_RESULTS, **QUICK)
        drawing = gr.on(begun[:2], self.draw, [gr.State(False), *sent], places, **ONE_AT_A_TIME)
        comparing = controls.compare.click(self.draw, [gr.State(True), *sent], places, **ONE_AT_A_TIME)
        for event in (drawing, comparing):
            event.failure(lambda: "", None, results.progress, **QUICK)  # the queue is full, which gradio says
        controls.stop.click(self.stop, None, told, cancels=[drawing, comparing], **QUICK)
        page.unload(self.leave)
        page.load(self.load, None, [*form, *places, *both], **QUICK)
        results.pictures.select(self.look, results.shown, results.slider, **QUICK)
        results.history.select(self.restore, None, [*form, *places, *both], **QUICK)
        results.forget.click(self.forget, None, [*places, *both], **QUICK)
        controls.upload.upload(self.upload, None, [self.start, controls.uploaded], **QUICK)

    def draw(
        self, request: gr.Request, compare: bool, start: Start | None, plan: Plan | None, *values: Any
    ) -> Iterator[Changes]:
        """Draws a run, and yields what changes on the page. With `compare` a picture with every method."""
        form = Form(*values)

        def work(job: Job) -> Run:
            if start is not None and not start.picture.is_file():
                raise ValueError(NO_PICTURE)
            order = form.order(self.offer, start, plan, compare=compare)
            return self.runs.save(form, order, self.worker.draw(order, self.runs.known(order), job), job.check_stop)

        progress = RunProgress()
        for event in self.worker.run(str(request.session_hash), work):
            yield self.changes(event, progress)

    def changes(self, event: Any, progress: RunProgress) -> Changes:
        match event:
            case Progress():
                return {self.results.notice: "", self.results.progress: progress.html(event)}
            case Finished(run):
                return self.results.of(run, self.runs)
            case Failed(sentence):
                return self.ended(sentence)
            case _:
                return self.ended(STOPPED, "note")

    def ended(self, sentence: str, kind: str = "error") -> Changes:
        """The page as before, with a sentence that says why nothing came of a run."""
        return {self.results.notice: notice(sentence, kind), self.results.progress: ""}

    def stop(self, request: gr.Request) -> Changes:
        self.worker.stop(str(request.session_hash))
        return self.ended(STOPPED, "note")

    def leave(self, request: gr.Request) -> None:
        """Stops the run of a tab that is closed."""
        self.worker.stop(str(request.session_hash))

    def load(self) -> Changes:
        """What was drawn last; the example where nothing was."""
        kept = self.runs.kept
        return self.restored(kept[0]) if kept else self.results.of(self.example, self.runs)

    def restore(self, event: gr.SelectData) -> Changes:
        """Shows a run of the history again, and sets the controls to its settings."""
        run = next((run for at, run in enumerate(self.runs.kept) if at == event.index), None)
        return {self.results.notice: notice(GONE, "note")} if run is None else self.restored(run)

    def restored(self, run: Run) -> Changes:
        form = dict(zip(self.controls.form, run.form, strict=True))
        changes = {**form, **self.results.of(run, self.runs), **self.started(run.start)}
        return {**changes, self.plan: run.plan} if run.plan is not None else changes

    def started(self, start: Start | None) -> Changes:
        return {self.start: start, self.controls.uploaded: notice(str(start), "note") if start else ""}

    def look(self, shown: Run, event: gr.SelectData) -> Any:
        """Another picture beside the one with full attention."""
        found = next((view for at, view in enumerate(views(shown)) if at == event.index), None)
        return gr.skip() if found is None else slider_with(found)

    def forget(self) -> Changes:
        """Deletes all that was drawn, and shows the example again."""
        self.runs.forget()
        changes = {**self.results.of(self.example, self.runs), **self.started(None)}
        return {**changes, self.results.notice: notice(FORGOTTEN, "note")}

    def upload(self, event: gr.EventData) -> Changes:
        """Keeps a picture to start from, and its mask; or removes them."""
        sent = event._data if isinstance(event._data, dict) else {}
        try:
            side, picture = self.offer.side, sent.get("picture")
            return self.started(save_start(self.runs.root, picture, sent.get("mask"), side) if picture else None)
        except ValueError as error:
            return {self.controls.uploaded: notice(str(error))}
