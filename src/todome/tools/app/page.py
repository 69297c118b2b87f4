"""The page: what happens when a visitor draws, stops, restores a run or chooses a preset."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from ..generate import Settings
from ..pipelines import size_step
from . import views
from .archive import Archive
from .filter import visitor_address
from .form import Form
from .layout import QUIET, Controls, Results, html, lay_out_controls, lay_out_results
from .limits import Limits
from .presets import Preset, first_form, presets
from .session import Run, Session
from .worker import UNKNOWN, Drawing, DrawWorker, Event, Failed, Finished, Progress, Stopped, Visitor, Waiting, log

STOPPED = "Stopped. Nothing of this run is kept."
GONE = "This run is no longer kept."
Changes = dict[Any, Any]  # of the page: what its parts become


@dataclass(frozen=True)
class Shop:
    """What serves every visitor; nothing in it belongs to one of them."""

    worker: DrawWorker
    archive: Archive
    limits: Limits
    base: Settings  # the model and the machine


def build(shop: Shop) -> gr.Blocks:
    model, pipe = shop.base.model, shop.worker.pipe
    first, offered = first_form(model, pipe, shop.limits), presets(model, pipe, shop.limits)
    with gr.Blocks(title="todome", analytics_enabled=False, fill_width=True) as page:
        html(views.header(model, str(pipe.device)))
        with gr.Row(elem_id="bench"):
            with gr.Column(elem_id="controls", min_width=0):
                controls = lay_out_controls(first, offered, shop.limits, size_step(pipe))
            with gr.Column(elem_id="results", min_width=0):
                results = lay_out_results()
        session = gr.State(Session(), delete_callback=Session.forget)
        Page(shop, controls, results, session, offered).connect(page)
    return page


@dataclass(frozen=True)
class Page:
    """The parts of the page, and what each event makes of them. What belongs to a visitor comes with the event."""

    shop: Shop
    controls: Controls
    results: Results
    session: gr.State
    offered: list[Preset]

    def connect(self, page: gr.Blocks) -> None:
        controls, form, seen = self.controls, list(self.controls.form), list(vars(self.results).values())
        buttons = [controls.draw, controls.stop]
        # There is room beyond those who wait, for the ones who are told that there is none.
        line = {**QUIET, "concurrency_limit": self.shop.limits.waiting + 4}
        asked = [controls.draw.click, controls.form.prompt.submit]
        drawing = gr.on(asked, self.draw, [*form, self.session], [*seen, self.session, *buttons], **line)
        drawing.then(self.rest, None, buttons, **QUIET)
        controls.stop.click(self.stop, None, None, **QUIET)
        page.unload(self.stop)
        self.results.history.restore(self.restore, self.session, [*form, controls.preset, *seen], **QUIET)
        controls.preset.input(self.choose_preset, controls.preset, form, **QUIET)
        parts = [controls.factors, controls.merging, controls.window]
        controls.form.method.change(self.choose_method, controls.form.method, parts, **QUIET)
        factors = [controls.form.factor, controls.form.factor2]
        controls.form.auto.change(self.choose_auto, controls.form.auto, factors, **QUIET)

    def draw(self, request: gr.Request, *values: Any) -> Iterator[Changes]:
        """A run, from what the controls say to what is seen of it."""
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
        settings = form.settings(self.shop.limits, self.shop.base)
        number, (known, dense) = session.made + 1, known_dense(session, settings)
        drawn_in = known.drawn_in if known else number
        keep = partial(self.shop.archive.kept, form, settings, number, drawn_in)
        sight = Sight(settings, drawn_in if known else None)
        for event in self.shop.worker.draw(visitor, settings, keep, dense):
            match event:
                case Finished(run):
                    session = session.with_run(run, self.shop.limits.runs)
                    yield {**self.results.of(run, session), self.session: session}
                case Failed(sentence):
                    yield self.unchanged(session, sentence)
                case Stopped():
                    yield self.unchanged(session, STOPPED, "note")
                case _:
                    yield {self.results.notice: "", self.results.stage: sight.of(event)}

    def unchanged(self, session: Session, said: str, kind: str = "error") -> Changes:
        """What was seen before, and why nothing came of a run."""
        last = session.runs[0] if session.runs else None
        stage = views.empty() if last is None else views.stage(last)
        return {self.results.notice: views.notice(said, kind), self.results.stage: stage}

    def rest(self) -> tuple[Any, Any]:
        return gr.Button(interactive=True), gr.Button(interactive=False)

    def stop(self, request: gr.Request) -> None:
        """Also for a visitor who has left."""
        self.shop.worker.stop(visitor_of(request).session)

    def restore(self, session: Session, event: gr.EventData) -> Changes:
        """The settings, the pictures and the numbers of a run of the history."""
        run = session.run(getattr(event, "run", 0))
        if run is None or not run.folder.is_dir():
            return {self.results.notice: views.notice(GONE, "note")}
        form = dict(zip(self.controls.form, run.form, strict=True))
        return {**form, self.controls.preset: None, **self.results.of(run, session)}

    def choose_preset(self, name: str) -> Changes:
        sets = next((preset.sets for preset in self.offered if preset.name == name), {})
        return {getattr(self.controls.form, field): value for field, value in sets.items()}

    def choose_method(self, method: str) -> list[Any]:
        """Only what belongs to a method is shown."""
        downsamples, merges = method in ("todome", "ToDo"), method == "ToMe"
        return [
            gr.Column(visible=downsamples),
            gr.Column(visible=merges),
            gr.Accordion(visible=downsamples or merges),
        ]

    def choose_auto(self, auto: bool) -> list[Any]:
        return [gr.Number(interactive=not auto), gr.Number(interactive=not auto)]


@dataclass
class Sight:
    """What is seen of a run while it goes on: the last preview stays until the next one."""

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
        return run, run and run.dense.drawing()
    except FileNotFoundError:
        return None, None


def visitor_of(request: gr.Request) -> Visitor:
    return Visitor(str(request.session_hash), visitor_address(request.client.host if request.client else ""))
