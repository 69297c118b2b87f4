"""Layout of the page: the controls, and the places for results."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from ..schedulers import SCHEDULERS
from . import views
from .form import METHODS, NONE, OWN, STRIDES, WEIGHTS, Form, Offer
from .limits import GUIDANCE, SMALLEST, Limits
from .presets import PACES, SizePreset, size_of
from .session import Run, Session

CLICKS = """
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-run], [data-forget], [data-set], [data-remove]");
  if (!button) return;
  if (button.dataset.run) trigger("restore", {run: Number(button.dataset.run)});
  if ("forget" in button.dataset) trigger("forget", {});
  if ("remove" in button.dataset) trigger("clear", {});
  if (button.dataset.set) trigger("select", {factor: Number(button.dataset.set)});
});
"""
UPLOADS = 'window.todomeUpload(element, (data) => trigger("upload", data));'
DIFFERENCE = (
    "todome looks at a different part of the picture at every step, ToDo always at the same one; "
    "ToMe merges tokens that are alike."
)
ANOTHER_SEED = "() => Math.floor(Math.random() * 2 ** 32)"
NAMES = {"dense": "full attention", "plan": "your plan"}  # of methods, where they differ from what is sent
html = partial(gr.HTML, apply_default_css=False)
slider = partial(gr.Slider, buttons=[], min_width=120)
fold = partial(gr.Accordion, open=False, elem_classes="fold")
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": None}


@dataclass(frozen=True)
class Controls:
    """Controls of the page. The order of `form` is that of Form."""

    form: Form  # of components
    draw: gr.Button
    stop: gr.Button
    compare: gr.Button
    estimate: gr.HTML
    pace: gr.Radio
    setting: gr.HTML
    size: gr.Radio
    factors: gr.Column
    merging: gr.Column
    window: gr.Column
    upload: gr.HTML
    uploaded: gr.HTML


@dataclass(frozen=True)
class Results:
    """Places for results."""

    notice: gr.HTML
    progress: gr.HTML
    stage: gr.HTML
    verdict: gr.HTML
    history: gr.HTML
    more: gr.HTML

    def of(self, run: Run, session: Session, most: int) -> dict[Any, Any]:
        """HTML of a finished run, for every place."""
        return {
            self.notice: "",
            self.progress: "",
            self.stage: views.stage(run),
            self.verdict: views.verdict_of(run),
            self.history: views.history(session, run.number, most),
            self.more: views.more(run),
        }


def lay_out_controls(first: Form, sizes: list[SizePreset], limits: Limits, offer: Offer, step: int) -> Controls:
    named: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    named["prompt"] = gr.Textbox(
        first.prompt, label="Prompt", placeholder="What to draw", lines=1, max_lines=6, elem_id="prompt"
    )
    with gr.Row(elem_id="buttons"):
        parts["draw"] = gr.Button("Draw", variant="primary", elem_id="draw")
        parts["stop"] = gr.Button("Stop", interactive=False, elem_id="stop")
    parts["estimate"] = html(elem_id="estimate")
    paces = [(pace.capitalize(), pace) for pace in PACES]
    parts["pace"] = gr.Radio(paces, label="Closest to the picture, or fastest", elem_id="pace")
    parts["setting"] = html(elem_id="setting", js_on_load=CLICKS)
    parts["compare"] = gr.Button("Compare all methods", size="md", elem_id="compare")
    with fold("Size, steps and seed", elem_id="picture"):
        names = [preset.name for preset in sizes]
        parts["size"] = gr.Radio(names, value=size_of(first, sizes), label="Size", visible=bool(names), elem_id="sizes")
        named |= lay_out_picture(first, limits, step)
    with fold("Method and factors", elem_id="methods"):
        more, groups = lay_out_method(first)
        named, parts = {**named, **more}, {**parts, **groups}
    with fold("Start from a picture of yours", elem_id="start"):
        parts["upload"] = html(views.upload(), elem_id="upload", js_on_load=UPLOADS)
        parts["uploaded"] = html(elem_id="uploaded", js_on_load=CLICKS)
        about = "0.3 keeps most of it, 0.9 little"
        named["strength"] = slider(0.05, 1, first.strength, step=0.05, label="Strength", info=about)
    with fold("Model and LoRA", elem_id="model", visible=len(offer.models) > 1 or bool(offer.loras)):
        named |= lay_out_model(first, offer)
    return Controls(form=Form(**{name: named[name] for name in Form._fields}), **parts)


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
        named["seed"] = gr.Number(first.seed, precision=0, label="Seed", elem_id="seed", min_width=120)
        another = gr.Button("Another seed", size="sm", elem_id="another", min_width=120)
    about = "Each with a seed of its own" if limits.pictures > 1 else None
    named["count"] = slider(1, max(2, limits.pictures), first.count, step=1, label="Pictures", info=about)
    choices = [("The model's own", OWN), *((known.title, name) for name, known in SCHEDULERS.items())]
    named["scheduler"] = gr.Dropdown(choices, value=first.scheduler, label="Scheduler")
    named["negative"] = gr.Textbox(
        first.negative, label="Negative prompt", placeholder="What to keep away from", lines=1
    )
    another.click(None, outputs=named["seed"], js=ANOTHER_SEED, **QUIET)
    return named


def lay_out_method(first: Form) -> tuple[dict[str, Any], dict[str, Any]]:
    """Controls of the methods, and the groups of them that are shown with one method alone."""
    named = {}
    choices = [(NAMES.get(method, method), method) for method in METHODS]
    named["method"] = gr.Radio(choices, value=first.method, label="Method", info=DIFFERENCE, elem_id="method")
    with gr.Column(elem_id="factors") as factors:
        named["auto"] = gr.Checkbox(first.auto, label="Factor by the size (automatic)")
        with gr.Row():
            shared: dict[str, Any] = {"step": 0.5, "interactive": not first.auto, "min_width": 120}
            about = "2 looks at 1 token in 4", "Deeper layers; 1 is full attention"
            named["factor"] = gr.Number(first.factor, label="Factor, level 1", info=about[0], **shared)
            named["factor2"] = gr.Number(first.factor2, label="Factor, level 2", info=about[1], **shared)
    with gr.Column(visible=False, elem_id="merging") as merging:
        most = 1 - 1 / int(STRIDES[-1]) ** 2
        named["ratio"] = slider(0, most, first.ratio, label="Ratio", info="Share of tokens that are merged")
        named["stride"] = gr.Radio(list(STRIDES), value=first.stride, label="Stride", info="Larger ones allow more")
    with gr.Column(elem_id="window") as window, gr.Row():
        about = "of the steps; full attention before", "and after"
        named["start"] = slider(0, 1, first.start, step=0.05, label="From", info=about[0])
        named["stop"] = slider(0, 1, first.stop, step=0.05, label="To", info=about[1])
    return named, {"factors": factors, "merging": merging, "window": window}


def lay_out_model(first: Form, offer: Offer) -> dict[str, Any]:
    models = [(views.shown_model(model), model) for model in offer.models]
    loras = [("None", NONE), *((name.removesuffix(".safetensors"), name) for name in offer.loras)]
    about = "Another one is opened when you draw, which takes a while"
    return {
        "model": gr.Dropdown(models, value=first.model, label="Model", info=about, visible=len(models) > 1),
        "lora": gr.Dropdown(loras, value=first.lora, label="LoRA", visible=len(loras) > 1, elem_id="lora"),
        "weight": slider(*WEIGHTS, first.weight, step=0.05, label="LoRA weight", visible=len(loras) > 1),
    }


def lay_out_results(example: Run, label: str) -> Results:
    places: dict[str, Any] = {"notice": html(elem_id="notice")}
    html(views.view_choice(), elem_id="views")
    places["progress"] = html(elem_id="progress")
    places["stage"] = html(views.stage(example), elem_id="stage")
    with gr.Column(elem_id="side", min_width=0):
        places["verdict"] = html(views.verdict_of(example, label), elem_id="verdict")
        places["history"] = html(elem_id="history", js_on_load=CLICKS)
    places["more"] = html(elem_id="more")
    return Results(**places)
