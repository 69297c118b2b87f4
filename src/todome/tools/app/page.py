"""Events of the page: what happens when a visitor draws, stops, restores a run or chooses a preset."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from ..generate import Settings
from ..pipelines import size_step
from . import views
from .filter import visitor_address
from .form import Form
from .layout import QUIET, Controls, Results, html, lay_out_controls, lay_out_results
from .limits import Limits
from .presets import Preset, first_form, presets
from .session import Run, Session
from .store import PictureStore
from .worker import UNKNOWN, Drawing, DrawWorker, Event, Failed, Finished, Progress, Stopped, Visitor, Waiting, log

STOPPED = "Stopped. Nothing of this run is kept."
GONE = "This run is no longer kept."
Changes = dict[Any, Any]  # of the page: what its parts become


@dataclass(frozen=True)
class AppContext:
    """Parts that all visitors share."""

    worker: DrawWorker
    store: PictureStore
    limits: Limits
    base: Settings  # model, device and dtype


def build(context: AppContext) -> gr.Blocks:
    model, pipe = context.base.model, context.worker.pipe
    first, offered = first_form(model, pipe, context.limits), presets(model, pipe, context.limits)
    with gr.Blocks(title="todome", analytics_enabled=False, fill_width=True) as page:
        html(views.header(model, str(pipe.device)))
        with gr.Row(elem_id="bench"):
            with gr.Column(elem_id="controls", min_width=0):
                controls = lay_out_controls(first, offered, context.limits, size_step(pipe))
            with gr.Column(elem_id="results", min_width=0):
                results = lay_out_results()
        session = gr.State(Session(), delete_callback=Session.delete_files)
        Page(context, controls, results, session, offered).connect(page)
    return page


@dataclass(frozen=True)
class Page:
    """The parts of the page, and what each event makes of them. What belongs to a visitor comes with the event."""

    context: AppContext
    controls: Controls
    results: Results
    session: gr.State
    offered: list[Preset]

    def connect(self, page: gr.Blocks) -> None:
        controls, form, views_of_run = self.controls, list(self.controls.form), list(vars(self.results).values())
        buttons = [controls.draw, controls.stop]
        # More may enter than can wait, so that those for whom there is no place get an answer.
        queued = {**QUIET, "concurrency_limit": self.context.limits.waiting + 4}
        asked = [controls.draw.click, controls.form.prompt.submit]
        drawing = gr.on(asked, self.draw, [*form, self.session], [*views_of_run, self.session, *buttons], **queued)
        drawing.then(self.enable_draw, None, buttons, **QUIET)
        controls.stop.click(self.stop, None, None, **QUIET)
        page.unload(self.stop)
        self.results.history.restore(self.restore, self.session, [*form, controls.preset, *views_of_run], **QUIET)
        controls.preset.input(self.choose_preset, controls.preset, form, **QUIET)
        parts = [controls.factors, controls.merging, controls.window]
        controls.form.method.change(self.choose_method, controls.form.method, parts, **QUIET)
        factors = [controls.form.factor, controls.form.factor2]
        controls.form.auto.change(self.choose_auto, controls.form.auto, factors, **QUIET)

    def draw(self, request: gr.Request, *values: Any) -> Iterator[Changes]:
        """Draws a run, and yields what changes on the page."""
        yield {self.controls.draw: gr.Button(interactive=False), self.controls.stop: gr.Button(interactive=True)}
        form, session = Form(*values[:-1]), values[-1]
        try:
            yield from self.run(form, session, visitor_of(request))
        except ValueError as error:
            yield self.unchanged(session, str(error))
        except Exception:
            log.exception("A run could not be shown: %s", form)
            yield self.unchanged(session, UNKNOWN)

    def run(self, form: Form, session: Session, visitor: Visitor) -> Iterator[Changes]:
        settings = form.settings(self.context.limits, self.context.base)
        number, (known, dense) = session.last + 1, known_dense(session, settings)
        drawn_in = known.drawn_in if known else number
        save = partial(self.context.store.save_run, form, settings, number, drawn_in)
        view = ProgressView(settings, drawn_in if known else None)
        for event in self.context.worker.draw(visitor, settings, save, dense):
            match event:
                case Finished(run):
                    session = session.add_run(run, self.context.limits.runs)
                    yield {**self.results.of(run, session), self.session: session}
                case Failed(sentence):
                    yield self.unchanged(session, sentence)
                case Stopped():
                    yield self.unchanged(session, STOPPED, "note")
                case _:
                    yield {self.results.notice: "", self.results.stage: view.of(event)}

    def unchanged(self, session: Session, sentence: str, kind: str = "error") -> Changes:
        """The page as before, with a sentence that says why nothing came of a run."""
        last = session.runs[0] if session.runs else None
        stage = views.empty() if last is None else views.stage(last)
        return {self.results.notice: views.notice(sentence, kind), self.results.stage: stage}

    def enable_draw(self) -> tuple[Any, Any]:
        return gr.Button(interactive=True), gr.Button(interactive=False)

    def stop(self, request: gr.Request) -> None:
        """Stops the run of a visitor, also of one who has left."""
        self.context.worker.stop(visitor_of(request).session)

    def restore(self, session: Session, event: gr.EventData) -> Changes:
        """Shows a run of the history again, and sets the controls to its settings."""
        run = session.run(getattr(event, "run", 0))
        if run is None or not run.folder.is_dir():
            return {self.results.notice: views.notice(GONE, "note")}
        form = dict(zip(self.controls.form, run.form, strict=True))
        return {**form, self.controls.preset: None, **self.results.of(run, session)}

    def choose_preset(self, name: str) -> Changes:
        sets = next((preset.sets for preset in self.offered if preset.name == name), {})
        return {getattr(self.controls.form, field): value for field, value in sets.items()}

    def choose_method(self, method: str) -> list[Any]:
        """Shows the controls of a method alone."""
        downsamples, merges = method in ("todome", "ToDo"), method == "ToMe"
        return [
            gr.Column(visible=downsamples),
            gr.Column(visible=merges),
            gr.Accordion(visible=downsamples or merges),
        ]

    def choose_auto(self, auto: bool) -> list[Any]:
        return [gr.Number(interactive=not auto), gr.Number(interactive=not auto)]


@dataclass
class ProgressView:
    """HTML of a run while it is drawn. The last preview stays until there is a next one."""

    settings: Settings
    drawn_in: int | None  # the run that has the dense picture already
    last: Progress | None = None

    def of(self, event: Event) -> str:
        if isinstance(event, Progress):
            before = self.last.preview if self.last else ""
            self.last = event._replace(preview=event.preview or before)
        if self.last is not None:
            return views.running(self.last, self.settings, self.drawn_in)
        return views.waiting(event.before if isinstance(event, Waiting) else 0, self.settings)


def known_dense(session: Session, settings: Settings) -> tuple[Run | None, Drawing | None]:
    """The run that has the dense picture of these settings, and the picture, unless it had to make room."""
    run = session.dense_of(settings)
    try:
        return run, run and run.dense.load()
    except FileNotFoundError:
        return None, None


def visitor_of(request: gr.Request) -> Visitor:
    return Visitor(str(request.session_hash), visitor_address(request.client.host if request.client else ""))
