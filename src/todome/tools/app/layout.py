"""Layout of the page: the controls, and the places for results."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from ..schedulers import SCHEDULERS
from . import views
from .form import METHODS, OWN, STRIDES, Form
from .limits import GUIDANCE, SMALLEST, Limits
from .presets import Preset
from .session import Run, Session

RESTORE = """
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-run]");
  if (button) trigger("restore", {run: Number(button.dataset.run)});
});
"""
DIFFERENCE = "todome keeps other keys at every step, ToDo always the same; ToMe merges tokens."
ANOTHER_SEED = "() => Math.floor(Math.random() * 2 ** 32)"
html = partial(gr.HTML, apply_default_css=False)
slider = partial(gr.Slider, buttons=[], min_width=120)
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": None}


@dataclass(frozen=True)
class Controls:
    """Controls of the page. The order of `form` is that of Form."""

    form: Form  # of components
    draw: gr.Button
    stop: gr.Button
    preset: gr.Radio
    factors: gr.Column
    merging: gr.Column
    window: gr.Accordion


@dataclass(frozen=True)
class Results:
    """Places for results."""

    notice: gr.HTML
    stage: gr.HTML
    facts: gr.HTML
    recipes: gr.HTML
    chart: gr.HTML
    history: gr.HTML

    def of(self, run: Run, session: Session) -> dict[Any, Any]:
        """HTML of a finished run, for every place."""
        return {
            self.notice: "",
            self.stage: views.stage(run),
            self.facts: views.facts(run),
            self.recipes: views.recipes(run),
            self.chart: views.chart(session),
            self.history: views.history(session, run.number),
        }


def lay_out_controls(first: Form, offered: list[Preset], limits: Limits, step: int) -> Controls:
    named: dict[str, Any] = {}
    named["prompt"] = gr.Textbox(
        first.prompt, label="Prompt", placeholder="What to draw", lines=1, max_lines=6, elem_id="prompt"
    )
    with gr.Row(elem_id="buttons"):
        draw = gr.Button("Draw", variant="primary", elem_id="draw")
        stop = gr.Button("Stop", interactive=False, elem_id="stop")
    names = [preset.name for preset in offered]
    preset = gr.Radio(names, value=names[0] if names else None, label="Preset", visible=bool(names), elem_id="preset")
    named["method"] = gr.Radio(list(METHODS), value=first.method, label="Method", info=DIFFERENCE, elem_id="method")
    with gr.Column(elem_id="factors") as factors:
        named["auto"] = gr.Checkbox(first.auto, label="Factor by the size (auto)")
        with gr.Row():
            shared: dict[str, Any] = {"step": 0.5, "interactive": not first.auto, "min_width": 120}
            named["factor"] = gr.Number(first.factor, label="Factor, level 1", info="Keeps 1 key in F x F", **shared)
            named["factor2"] = gr.Number(first.factor2, label="Factor, level 2", info="1 is dense", **shared)
    with gr.Column(visible=False, elem_id="merging") as merging:
        most = 1 - 1 / int(STRIDES[-1]) ** 2
        named["ratio"] = slider(0, most, first.ratio, label="Ratio", info="Share of tokens merged")
        named["stride"] = gr.Radio(list(STRIDES), value=first.stride, label="Stride", info="Larger ones allow more")
    with gr.Accordion("Window of steps", open=False, elem_id="window") as window, gr.Row():
        named["start"] = slider(0, 1, first.start, step=0.05, label="Start", info="Dense before it")
        named["stop"] = slider(0, 1, first.stop, step=0.05, label="Stop", info="Dense after it")
    with gr.Accordion("Size, steps, guidance, seed, scheduler", open=False, elem_id="picture"):
        named |= lay_out_picture(first, limits, step)
    form = Form(**{name: named[name] for name in Form._fields})
    return Controls(form, draw, stop, preset, factors, merging, window)


def lay_out_picture(first: Form, limits: Limits, step: int) -> dict[str, Any]:
    """Controls that every method has."""
    named = {}
    least, most = -(-SMALLEST // step) * step, limits.side // step * step
    with gr.Row():
        named["width"] = slider(least, most, first.width, step=step, label="Width")
        named["height"] = slider(least, most, first.height, step=step, label="Height")
    with gr.Row():
        named["steps"] = slider(1, limits.steps, first.steps, step=1, label="Steps")
        named["guidance"] = slider(0, GUIDANCE, first.guidance, step=0.5, label="Guidance")
    with gr.Row(elem_id="seeds"):
        named["seed"] = gr.Number(first.seed, precision=0, label="Seed", elem_id="seed")
        another = gr.Button("Another seed", size="sm", elem_id="another")
    choices = [("The model's own", OWN), *((known.title, name) for name, known in SCHEDULERS.items())]
    named["scheduler"] = gr.Dropdown(choices, value=first.scheduler, label="Scheduler")
    named["negative"] = gr.Textbox(
        first.negative, label="Negative prompt", placeholder="What to keep away from", lines=1
    )
    another.click(None, outputs=named["seed"], js=ANOTHER_SEED, **QUIET)
    return named


def lay_out_results() -> Results:
    return Results(
        notice=html(elem_id="notice"),
        stage=html(views.empty(), elem_id="stage"),
        facts=html(elem_id="facts"),
        recipes=html(elem_id="recipes"),
        chart=html(elem_id="chart"),
        history=html(elem_id="history", js_on_load=RESTORE),
    )
