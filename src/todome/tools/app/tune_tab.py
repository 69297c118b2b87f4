"""The Tune tab: its controls, the places for what is measured, and what happens when a visitor tunes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import gradio as gr

from ..measuring.evaluation import FLOWERS
from ..pipelines import EMBEDDED
from . import tuning_views, views
from .choices import Changes
from .form import Form
from .layout import QUIET, Controls, html, slider
from .limits import Limits
from .tuning import AIMS, FASTER, KEEP, MINUTES, Tuned, TuneForm, TuneState, tune_model
from .worker import UNKNOWN, Failed, Finished, Measured, Opening, OtherJob, Stopped, Visitor, Waiting, log

if TYPE_CHECKING:
    from .page import AppContext

STOPPED = "Stopped. What was measured until then is kept: tune again, and it goes on."
INTRODUCTION = (
    "Layers differ in how few tokens they bear. This measures every layer of the model on this machine, and finds a "
    "factor for each. Size, steps and model are those of the Draw tab."
)
WAITS = "How much each layer can save and how much it changes the picture is shown here while it is measured."
DRAW, TUNE = "draw-tab", "tune-tab"


@dataclass(frozen=True)
class TuneControls:
    """Controls of the tab, and places for results. The order of `form` is that of TuneForm."""

    form: TuneForm  # of components
    tune: gr.Button
    stop: gr.Button
    apply: gr.Button
    about: gr.HTML
    notice: gr.HTML
    progress: gr.HTML
    layers: gr.HTML
    result: gr.HTML


def lay_out_tune(model: str, limits: Limits) -> TuneControls:
    named: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    with gr.Row(elem_classes="bench"):
        with gr.Column(elem_id="tune-controls", elem_classes="controls", min_width=0):
            html(views.estimate(INTRODUCTION))
            aims = [("Stay close", AIMS[0]), ("Be fast", AIMS[1])]
            named["aim"] = gr.Radio(aims, value=AIMS[0], label="What matters more", elem_id="aim")
            about = "From 45 no difference is visible, from 35 it is hard to see"
            named["keep"] = slider(*KEEP, 40, step=1, label="dB to full attention", info=about, elem_id="keep")
            about = "1.2 is a fifth more pictures in the same time"
            named["faster"] = slider(*FASTER, 1.2, step=0.05, label="Times as fast", info=about, visible=False)
            with gr.Row(elem_classes="buttons"):
                parts["tune"] = gr.Button("Tune", variant="primary", elem_id="tune")
                parts["stop"] = gr.Button("Stop", interactive=False, elem_id="tune-stop")
            parts["about"] = html(elem_id="tune-about")
            most = min(limits.minutes, MINUTES[1])
            about = "It ends with the best plan found until then"
            named["minutes"] = slider(1, max(2, most), min(5, most), step=1, label="Minutes at most", info=about)
            own = "\n".join(FLOWERS[:5]) if model == EMBEDDED else ""
            about = "One is drawn to measure layers, the others to check plans"
            named["prompts"] = gr.Textbox(
                own, label="Prompts, one on each line", info=about, lines=5, max_lines=8, elem_id="tune-prompts"
            )
        with gr.Column(elem_id="tune-results", min_width=0):
            parts["notice"] = html(elem_id="tune-notice")
            parts["progress"] = html(elem_id="tune-progress")
            parts["result"] = html(elem_id="tune-result")
            parts["apply"] = gr.Button("Draw with this plan", visible=False, elem_id="apply", size="md")
            parts["layers"] = html(views.estimate(WAITS), elem_id="tune-layers")
    return TuneControls(form=TuneForm(**named), **parts)


@dataclass(frozen=True)
class TuneTab:
    """What each event of the tab makes of its parts."""

    context: "AppContext"
    controls: TuneControls
    drawing: Controls
    tabs: gr.Tabs
    visitor_of: Any

    def connect(self, page: gr.Blocks) -> None:
        controls, form = self.controls, list(self.controls.form)
        places = [controls.notice, controls.progress, controls.layers, controls.result]
        buttons = [controls.tune, controls.stop, controls.apply]
        queued = {**QUIET, "concurrency_limit": self.context.limits.waiting + 4}
        sent = [*form, *self.drawing.form]
        tuning = controls.tune.click(self.tune, sent, [*places, *buttons], **queued)
        tuning.then(self.enable, None, buttons[:2], **QUIET)
        controls.stop.click(self.stop, None, None, **QUIET)
        controls.apply.click(self.apply, None, [*self.drawing.form, self.tabs, controls.notice], **QUIET)
        budgets = [controls.form.keep, controls.form.faster]
        controls.form.aim.change(self.choose_aim, controls.form.aim, budgets, **QUIET)
        shown = [self.drawing.form.width, self.drawing.form.height, self.drawing.form.steps]
        gr.on([part.change for part in shown], self.describe, shown, controls.about, **QUIET)
        page.load(self.load, shown, [*places, controls.apply, controls.about], **QUIET)

    def tune(self, request: gr.Request, *values: Any) -> Iterator[Changes]:
        controls, visitor = self.controls, self.visitor_of(request)
        asked, form = TuneForm(*values[: len(TuneForm._fields)]), Form(*values[len(TuneForm._fields) :])
        yield {controls.tune: gr.Button(interactive=False), controls.stop: gr.Button(interactive=True)}
        try:
            context = self.context
            order = asked.order(form, context.limits, context.base, context.offer)
            job = OtherJob(visitor, partial(tune_model, order, context.store.root))
            state = TuneState("Getting ready.")
            for event in context.worker.follow(job):
                state = event.state if isinstance(event, Measured) else state
                yield self.changes(event, state, visitor)
        except ValueError as error:
            yield self.ended(str(error))
        except Exception:
            log.exception("A tuning could not be shown: %s", asked)
            yield self.ended(UNKNOWN)

    def changes(self, event: Any, state: TuneState, visitor: Visitor) -> Changes:
        controls = self.controls
        match event:
            case Finished(tuned):
                self.context.visitors.change(visitor.name, lambda session: session._replace(tuned=tuned))
                return {controls.notice: "", controls.progress: "", **self.shown(tuned)}
            case Failed(sentence):
                return self.ended(sentence)
            case Stopped():
                return self.ended(STOPPED, "note")
            case Opening(model):
                said = f"Opening {views.shown_model(model)}."
            case Waiting(before) if before:
                said = f"{before} run{'s' * (before != 1)} of others before yours."
            case _:
                said = ""
        found = {controls.layers: tuning_views.layers(state)} if state.layers else {}
        return {controls.notice: "", controls.progress: tuning_views.progress(state, said), **found}

    def ended(self, sentence: str, kind: str = "error") -> Changes:
        return {self.controls.notice: views.notice(sentence, kind), self.controls.progress: ""}

    def shown(self, tuned: Tuned) -> Changes:
        controls = self.controls
        return {
            controls.result: tuning_views.result(tuned),
            controls.layers: tuning_views.layers(tuned.state),
            controls.apply: gr.Button(visible=any(layer[:2] != (1, 1) for layer in tuned.plan.layers.values())),
        }

    def enable(self) -> tuple[Any, Any]:
        return gr.Button(interactive=True), gr.Button(interactive=False)

    def stop(self, request: gr.Request) -> None:
        self.context.worker.stop(self.visitor_of(request).session)

    def load(self, request: gr.Request, *values: Any) -> Changes:
        """The tab as a visitor left it."""
        tuned = self.context.visitors.session(self.visitor_of(request).name).tuned
        found = self.shown(tuned) if tuned is not None else {}
        return {**found, self.controls.about: self.describe(*values)}

    def apply(self, request: gr.Request) -> Changes:
        """Draws with the plan from now on, at the size and with the steps that it was measured with."""
        visitor = self.visitor_of(request)
        tuned = self.context.visitors.session(visitor.name).tuned
        if tuned is None:
            return {self.controls.notice: views.notice("Your plan is no longer kept. Tune again.", "note")}
        self.context.visitors.change(visitor.name, lambda session: session._replace(plan=tuned.plan))
        settings, form = tuned.order.settings, self.drawing.form
        width, height = settings.size or (0, 0)
        sets = {"method": "plan", "width": width, "height": height, "steps": settings.steps}
        sets |= {"guidance": settings.guidance, "scheduler": settings.scheduler or "", "model": settings.model}
        return {**{getattr(form, name): value for name, value in sets.items()}, self.tabs: gr.Tabs(selected=DRAW)}

    def choose_aim(self, aim: Any) -> tuple[Any, Any]:
        return gr.Slider(visible=aim != AIMS[1]), gr.Slider(visible=aim == AIMS[1])

    def describe(self, width: Any, height: Any, steps: Any) -> str:
        shown = " x ".join(json.dumps(side) for side in (width, height))
        return views.estimate(f"Pictures of {shown} in {json.dumps(steps)} steps, as on the Draw tab.")
