"""The Tune tab: its controls, the places for what is measured, and what happens when one tunes."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
import pandas

from ...levers.plan import Plan
from ..measuring.evaluation import FLOWERS
from ..pipelines import EMBEDDED, format_size
from ..tuning.layers import factors_of
from .controls import QUICK, Controls, control, html, macros, slider
from .drawing import Failed, Finished, Job, Worker
from .form import Form, Offer
from .results import Changes, notice, progress_html
from .tuning import AIMS, FASTER, KEEP, MINUTES, Tuned, TuneForm, TuneState, tune_model

STOPPED = "Stopped. What was measured until then is kept: tune again, and it goes on."
INTRODUCTION = (
    "Layers differ in how few tokens they bear. This measures every layer of the model on this machine, and finds a "
    "factor for each. Size and steps are those of the Draw tab."
)
WAITS = "How much each layer can save and how much it changes the picture is shown here while it is measured."
NO_LONGER = "There is no plan any more. Tune again."
DRAW, TUNE = "draw-tab", "tune-tab"
AXES = pandas.Index(["times as fast", "dB to full attention", "plan"])


@dataclass(frozen=True)
class TuneControls:
    """Controls of the tab, and places for results. The order of `form` is that of TuneForm."""

    form: TuneForm  # of components
    tune: gr.Button
    stop: gr.Button
    apply: gr.Button
    notice: gr.HTML
    progress: gr.HTML
    layers: gr.HTML
    result: gr.HTML
    plot: gr.ScatterPlot
    file: gr.DownloadButton


def lay_out_tune(model: str) -> TuneControls:
    parts: dict[str, Any] = {}
    with gr.Row(elem_classes="bench"):
        with gr.Column(elem_classes="controls", min_width=0):
            html(macros().hint(INTRODUCTION))
            named = lay_out_goal()
            with gr.Row(elem_classes="buttons"):
                parts["tune"] = gr.Button("Tune", variant="primary", elem_id="tune")
                parts["stop"] = gr.Button("Stop", elem_id="tune-stop")
            about = "It ends with the best plan found until then"
            named["minutes"] = slider(1, MINUTES[1], 5, step=1, label="Minutes at most", info=about)
            own = "\n".join(FLOWERS[:5]) if model == EMBEDDED else ""
            about = "One is drawn to measure layers, the others to check plans"
            label = "Prompts, one on each line"
            named["prompts"] = control(gr.Textbox, own, label=label, info=about, lines=5, max_lines=8)
        with gr.Column(min_width=0):
            for name in ("notice", "progress", "result"):
                parts[name] = html(elem_id=f"tune-{name}")
            with gr.Row(elem_classes="buttons"):
                parts["apply"] = gr.Button("Draw with this plan", visible=False, elem_id="apply")
                parts["file"] = gr.DownloadButton("Download plan.json", visible=False, elem_id="plan-file")
            axes = {**dict(zip(("x", "y", "color"), AXES, strict=True)), "label": "Closeness and speed", "height": 300}
            parts["plot"] = gr.ScatterPlot(visible=False, elem_id="tune-plot", **axes)
            parts["layers"] = html(macros().hint(WAITS), elem_id="tune-layers")
    return TuneControls(form=TuneForm(**named), **parts)


def lay_out_goal() -> dict[str, Any]:
    named = {}
    aims = [("Stay close", AIMS[0]), ("Be fast", AIMS[1])]
    named["aim"] = control(gr.Radio, aims, value=AIMS[0], label="What matters more")
    about = "To stay close: from 45 no difference is visible, from 35 it is hard to see"
    named["keep"] = slider(*KEEP, 40, step=1, label="dB to full attention", info=about)
    about = "To be fast: 1.2 is a fifth more pictures in the same time"
    named["faster"] = slider(*FASTER, 1.2, step=0.05, label="Times as fast", info=about)
    return named


@dataclass
class TuneTab:
    """What each event of the tab makes of its parts; and the last tuning that was finished."""

    worker: Worker
    offer: Offer
    root: Path  # for what is measured, and for plans
    controls: TuneControls
    drawing: Controls
    plan: gr.State  # to draw with
    tabs: gr.Tabs
    tuned: Tuned | None = None

    def connect(self, page: gr.Blocks, one_at_a_time: dict[str, Any]) -> None:
        controls, shown = self.controls, vars(self.controls)
        results = [shown[name] for name in ("notice", "progress", "result", "plot", "layers", "apply", "file")]
        sent = [*controls.form, *self.drawing.form]
        tuning = controls.tune.click(self.tune, sent, results, **one_at_a_time)
        controls.stop.click(self.stop, None, results[:2], cancels=[tuning], **QUICK)
        outputs = [*self.drawing.form, self.plan, self.tabs, controls.notice]
        controls.apply.click(self.apply, None, outputs, **QUICK)
        page.load(self.load, None, results, **QUICK)

    def tune(self, request: gr.Request, *values: Any) -> Iterator[Changes]:
        asked, form = TuneForm(*values[: len(TuneForm._fields)]), Form(*values[len(TuneForm._fields) :])

        def work(job: Job) -> Tuned:
            return tune_model(asked.order(form, self.offer), self.root / "tuning", self.worker.pipe, job)

        yield {self.controls.notice: "", self.controls.progress: progress_of(TuneState("Getting ready."))}
        for event in self.worker.run(str(request.session_hash), work):
            yield self.changes(event)

    def changes(self, event: Any) -> Changes:
        match event:
            case Finished(tuned):
                self.tuned = tuned
                return {**self.ended(""), **self.shown(tuned)}
            case Failed(sentence):
                return self.ended(sentence)
            case TuneState() as state:
                layers = {self.controls.layers: layers_of(state)} if state.layers else {}
                return {self.controls.progress: progress_of(state), **layers}
            case _:
                return self.ended(STOPPED, "note")

    def ended(self, sentence: str, kind: str = "error") -> Changes:
        return {self.controls.notice: notice(sentence, kind), self.controls.progress: ""}

    def shown(self, tuned: Tuned) -> Changes:
        controls, found, settings = self.controls, tuned.plan.evidence, tuned.order.settings
        facts = [format_size(settings.size or ()), f"{settings.steps} steps", found.get("device"), tuned.order.goal]
        file = Path(tempfile.mkdtemp(dir=self.root)) / "plan.json"
        tuned.plan.save(file)
        reduces = any(layer.is_reduced for layer in tuned.plan.layers.values())
        points = tuned.points()
        return {
            controls.result: macros().tuned(found["verdict"], facts),
            controls.layers: layers_of(tuned.state, tuned.plan),
            controls.plot: gr.ScatterPlot(pandas.DataFrame(points, columns=AXES), visible=bool(points)),
            controls.apply: gr.Button(visible=reduces),
            controls.file: gr.DownloadButton(value=str(file), visible=True),
        }

    def stop(self, request: gr.Request) -> Changes:
        self.worker.stop(str(request.session_hash))
        return self.ended(STOPPED, "note")

    def load(self) -> Changes:
        """The last tuning."""
        return self.shown(self.tuned) if self.tuned is not None else {self.controls.notice: ""}

    def apply(self) -> Changes:
        """Draws with the plan from now on, at the size and with the steps that it was measured with."""
        if self.tuned is None:
            return {self.controls.notice: notice(NO_LONGER, "note")}
        settings, form = self.tuned.order.settings, self.drawing.form
        width, height = settings.size or (0, 0)
        sets = {"method": "plan", "width": width, "height": height, "steps": settings.steps}
        sets |= {"guidance": settings.guidance, "scheduler": settings.scheduler or ""}
        changes = {getattr(form, name): value for name, value in sets.items()}
        return {**changes, self.plan: self.tuned.plan, self.tabs: gr.Tabs(selected=DRAW)}


def progress_of(state: TuneState) -> str:
    return progress_html(state.said, state.left, state.done, state.steps)


def layers_of(state: TuneState, plan: Plan | None = None) -> str:
    """The table of the layers, with their factors where there is a plan."""
    planned = {} if plan is None else {name: "→".join(factors_of(layer)) for name, layer in plan.layers.items()}
    rows = [{**layer._asdict(), "factor": planned.get(layer.name, "")} for layer in state.layers]
    return macros().tuned_layers(rows) if rows else ""
