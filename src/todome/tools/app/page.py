"""Events of the page: what happens when a visitor draws, stops, restores a run or sends a picture."""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ...plan import Plan
from ..generate import Settings
from ..pipelines import size_step
from . import views
from .choices import Changes, Choices
from .filter import visitor_address
from .form import Form, Offer, Order
from .layout import QUIET, Controls, Results, html, lay_out_controls, lay_out_results
from .limits import Limits
from .presets import first_form, sizes, token_pixels
from .progress import ProgressView
from .session import Run, Session
from .start import save_start
from .store import PictureStore
from .tune_tab import DRAW, TUNE, TuneTab, lay_out_tune
from .visitors import Visitors, visitor_in
from .worker import UNKNOWN, Check, Drawing, DrawWorker, Failed, Finished, Stopped, Visitor, log

STOPPED = "Stopped. Nothing of this run is kept."
GONE = "This run is no longer kept."
FORGOTTEN = "Your runs and pictures are deleted."
NO_PICTURE = "Your picture to start from is no longer kept. Choose it again, or remove it."


@dataclass(frozen=True)
class AppContext:
    """Parts that all visitors share."""

    worker: DrawWorker
    store: PictureStore
    visitors: Visitors
    limits: Limits
    base: Settings  # model, device and dtype
    offer: Offer
    example: tuple[Run, str]  # and the machine it was made on


def build(context: AppContext) -> gr.Blocks:
    model, pipe, limits = context.base.model, context.worker.models.pipe, context.limits
    first, offered = first_form(model, pipe, limits), sizes(model, pipe, limits)
    example, machine = context.example
    label = f"An example, drawn before with {example.result.asked.model} on {machine}. Yours comes here."
    with gr.Blocks(title="todome", analytics_enabled=False, fill_width=True) as page:
        html(views.header(model, str(pipe.device)))
        with gr.Tabs(elem_id="tabs") as tabs:
            with gr.Tab("Draw", id=DRAW), gr.Row(elem_id="bench", elem_classes="bench"):
                with gr.Column(elem_id="controls", elem_classes="controls", min_width=0):
                    controls = lay_out_controls(first, offered, limits, context.offer, size_step(pipe))
                with gr.Column(elem_id="results", min_width=0):
                    results = lay_out_results(example, label)
            with gr.Tab("Tune", id=TUNE):
                tuning = lay_out_tune(model, limits)
        given = (context.worker.estimates, limits, context.base, context.offer)
        choices = Choices(controls, offered, token_pixels(pipe), *given)
        Page(context, controls, results, choices, label).connect(page)
        TuneTab(context, tuning, controls, tabs, visitor_of).connect(page)
    return page


@dataclass(frozen=True)
class Page:
    """The parts of the page, and what each event makes of them. What belongs to a visitor comes with the event."""

    context: AppContext
    controls: Controls
    results: Results
    choices: Choices
    label: str  # of the example

    def connect(self, page: gr.Blocks) -> None:
        controls, form, places = self.controls, list(self.controls.form), list(vars(self.results).values())
        buttons = [controls.draw, controls.stop, controls.compare]
        choices = self.choices
        described = choices.explained_parts
        # More may enter than can wait, so that those for whom there is no place get an answer.
        queued = {**QUIET, "concurrency_limit": self.context.limits.waiting + 4}
        latest = {**QUIET, "trigger_mode": "always_last"}
        drawing = gr.on(
            [controls.draw.click, controls.form.prompt.submit], self.draw, form, [*places, *buttons], **queued
        )
        comparing = controls.compare.click(self.draw_all, form, [*places, *buttons], **queued)
        for event in (drawing, comparing):
            event.then(self.enable_draw, None, buttons, **QUIET).then(choices.describe, form, described, **latest)
        controls.stop.click(self.stop, None, None, **QUIET)
        page.unload(self.stop)
        page.load(self.load, form, [*form, *places, *described, controls.uploaded], **QUIET)
        self.results.history.restore(self.restore, form, [*form, *places, controls.uploaded], **QUIET)
        self.results.history.forget(self.forget, None, [*places, controls.uploaded], **QUIET)
        controls.upload.upload(self.upload, None, controls.uploaded, **QUIET)
        controls.uploaded.clear(self.remove_start, None, controls.uploaded, **QUIET)
        explained = [part for part in controls.form if part is not controls.form.prompt]
        gr.on([part.change for part in explained], choices.describe, form, described, **latest)
        controls.pace.input(choices.choose_pace, [controls.pace, *form], form, **QUIET)
        controls.setting.select(choices.choose_factor, None, form, **QUIET)
        controls.size.input(choices.choose_size, controls.size, [controls.form.width, controls.form.height], **QUIET)

    def draw(self, request: gr.Request, *values: Any) -> Iterator[Changes]:
        """Draws a run, and yields what changes on the page."""
        yield from self.drawing(request, Form(*values), compare=False)

    def draw_all(self, request: gr.Request, *values: Any) -> Iterator[Changes]:
        """Draws a picture with every method."""
        yield from self.drawing(request, Form(*values), compare=True)

    def drawing(self, request: gr.Request, form: Form, *, compare: bool) -> Iterator[Changes]:
        controls, visitor = self.controls, visitor_of(request)
        off = {button: gr.Button(interactive=False) for button in (controls.draw, controls.compare)}
        yield {**off, controls.stop: gr.Button(interactive=True)}
        try:
            session = self.context.visitors.session(visitor.name)
            begin = session.start
            if begin is not None and not begin.picture.is_file():
                raise ValueError(NO_PICTURE)
            context, more = self.context, {"compare": compare, "plan": session.plan}
            order = form.order(context.limits, context.base, context.offer, begin, **more)
            yield from self.run(form, order, visitor)
        except ValueError as error:
            yield self.unchanged(visitor, str(error))
        except Exception:
            log.exception("A run could not be shown: %s", form)
            yield self.unchanged(visitor, UNKNOWN)

    def run(self, form: Form, order: Order, visitor: Visitor) -> Iterator[Changes]:
        context = self.context
        known = known_pictures(context.visitors.session(visitor.name), order)

        def save(drawings: list[Drawing], check_stop: Check) -> Run:
            number = context.visitors.session(visitor.name).last + 1
            drawn = [(one, known[at][1] if at in known else number) for at, one in enumerate(drawings)]
            run = context.store.save_run(form, order, number, drawn, check_stop)
            context.visitors.change(visitor.name, lambda session: session.add_run(run, context.limits.runs))
            return run

        view = ProgressView(context.worker, order, set(known))
        pictures = {at: drawing for at, (drawing, _) in known.items()}
        for event in context.worker.draw(visitor, order, save, pictures):
            match event:
                case Finished(run):
                    yield self.results.of(run, context.visitors.session(visitor.name), context.limits.runs)
                case Failed(sentence):
                    yield self.unchanged(visitor, sentence)
                case Stopped():
                    yield self.unchanged(visitor, STOPPED, "note")
                case _:
                    yield {self.results.notice: "", **view.changes(event, self.results)}

    def unchanged(self, visitor: Visitor, sentence: str, kind: str = "error") -> Changes:
        """The page as before, with a sentence that says why nothing came of a run."""
        session = self.context.visitors.session(visitor.name)
        shown = session.runs[0] if session.runs else self.context.example[0]
        return {
            self.results.notice: views.notice(sentence, kind),
            self.results.progress: "",
            self.results.stage: views.stage(shown),
            self.results.verdict: views.verdict_of(shown, "" if session.runs else self.label),
        }

    def enable_draw(self) -> tuple[Any, Any, Any]:
        return gr.Button(interactive=True), gr.Button(interactive=False), gr.Button(interactive=True)

    def stop(self, request: gr.Request) -> None:
        """Stops the run of a visitor, also of one who has left."""
        self.context.worker.stop(visitor_of(request).session)

    def load(self, request: gr.Request, *values: Any) -> Iterator[Changes]:
        """The page as a visitor left it; how long a picture takes, as soon as that is known."""
        session, form = self.context.visitors.session(visitor_of(request).name), Form(*values)
        if session.runs:
            yield self.shown(session.runs[0], session)
            form = session.runs[0].form
        yield {**self.choices.described(form), self.controls.uploaded: views.started(start_text(session))}
        patience = time.monotonic() + 120
        while self.context.worker.estimates.is_empty() and time.monotonic() < patience:
            time.sleep(0.5)
        yield self.choices.described(form)

    def restore(self, request: gr.Request, event: gr.EventData, *values: Any) -> Changes:
        """Shows a run of the history again, and sets the controls to its settings."""
        visitor = visitor_of(request)
        session = self.context.visitors.session(visitor.name)
        run = session.run(event._data.get("run") if isinstance(event._data, dict) else None)
        if run is None or not run.folder.is_dir():
            return {self.results.notice: views.notice(GONE, "note")}
        start = run.extras.start and run.extras.start.copy_to(self.context.store.root / secrets.token_urlsafe(16))
        plan = planned_in(run)
        session = self.context.visitors.change(
            visitor.name, lambda one: one.with_start(start)._replace(plan=plan or one.plan)
        )
        return {**self.shown(run, session), self.controls.uploaded: views.started(start_text(session))}

    def shown(self, run: Run, session: Session) -> Changes:
        form = dict(zip(self.controls.form, run.form, strict=True))
        return {**form, **self.results.of(run, session, self.context.limits.runs)}

    def forget(self, request: gr.Request) -> Changes:
        """Deletes all that is kept of a visitor."""
        visitor = visitor_of(request)
        self.context.visitors.forget(visitor.name)
        cleared = {self.results.history: "", self.results.more: "", self.controls.uploaded: ""}
        return {**self.unchanged(visitor, FORGOTTEN, "note"), **cleared}

    def upload(self, request: gr.Request, event: gr.EventData) -> str:
        """Keeps a picture to start from, and its mask; or removes them."""
        sent = event._data if isinstance(event._data, dict) else {}
        limits, store, visitor = self.context.limits, self.context.store, visitor_of(request)
        start = None
        try:
            if sent.get("picture"):
                start = save_start(store.root, sent["picture"], sent.get("mask"), limits.upload, limits.side)
                store.make_room(start.folder)
        except ValueError as error:
            return views.notice(str(error))
        return views.started(start_text(self.context.visitors.change(visitor.name, lambda one: one.with_start(start))))

    def remove_start(self, request: gr.Request) -> str:
        self.context.visitors.change(visitor_of(request).name, lambda session: session.with_start(None))
        return ""


def known_pictures(session: Session, order: Order) -> dict[int, tuple[Drawing, int]]:
    """Pictures with full attention that are there already, by their place, and the runs that drew them."""
    found = {}
    for at, settings in enumerate(order.pictures()):
        saved = None if settings.reduction else session.known(settings, order.extras)
        if saved is not None:
            try:
                found[at] = saved.load(), saved.run
            except FileNotFoundError:  # it had to make room
                continue
    return found


def planned_in(run: Run) -> Plan | None:
    """The plan that a run was drawn with, if it was."""
    return next((method for method in run.methods if isinstance(method, Plan)), None)


def start_text(session: Session) -> str:
    start = session.start
    if start is None:
        return ""
    what = "the part you painted is drawn anew" if start.masked else "all of it is drawn anew"
    size = " x ".join(map(str, start.size))
    return f"Draw starts from your picture ({size}), cut to the size that is set; {what}."


def visitor_of(request: gr.Request) -> Visitor:
    session = str(request.session_hash)
    cookies = request.headers.get("cookie", "") if request.headers else ""
    return Visitor(
        session, visitor_address(request.client.host if request.client else ""), visitor_in(cookies) or session
    )
