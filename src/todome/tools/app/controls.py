"""The controls of the page: their layout, and what some of them do to the others."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from ..schedulers import SCHEDULERS
from ..templates import load_template
from .form import METHODS, OWN, STRIDES, Form, Offer
from .limits import GUIDANCE, PICTURES, SMALLEST
from .presets import PACES, automatic_factor, pace_sets

DIFFERENCE = (
    "todome looks at a different part of the picture at every step, ToDo always at the same one; "
    "ToMe merges tokens that are alike."
)
ANOTHER_SEED = "() => Math.floor(Math.random() * 2 ** 32)"
NAMES = {"dense": "full attention", "plan": "your plan"}  # of methods, where they differ from what is sent
UPLOADS = 'window.todomeUpload(element, (data) => trigger("upload", data));'
html = partial(gr.HTML, apply_default_css=False)
fold = partial(gr.Accordion, open=False)
HIDDEN: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
QUICK: dict[str, Any] = {"queue": False, **HIDDEN}  # events that wait for no drawing


def macros() -> Any:
    """The HTML of the page. What is put into it is escaped."""
    return load_template(Path(__file__).with_name("views.html")).module


def control(kind: Any, *args: Any, **options: Any) -> Any:
    """A control whose value comes as it was sent: `Form` refuses it in a sentence, gradio would log a traceback."""
    made = kind(*args, **options)
    made.preprocess = lambda value: value
    return made


slider = partial(control, gr.Slider, buttons=[], min_width=120)


@dataclass(frozen=True)
class Controls:
    """Controls of the page. The order of `form` is that of Form."""

    form: Form  # of components
    draw: gr.Button
    stop: gr.Button
    compare: gr.Button
    pace: gr.Radio
    factors: gr.Column
    boxes: gr.Row
    merging: gr.Column
    window: gr.Row
    upload: gr.HTML
    uploaded: gr.HTML
    another: gr.Button

    def connect(self, pixels: int | None) -> None:
        """What they do to each other.

        Args:
            pixels: Of a token, on a side.
        """
        form = self.form
        groups = [self.factors, self.boxes, self.merging, self.window]
        gr.on([form.method.change, form.auto.change], groups_shown, [form.method, form.auto], groups, **QUICK)
        sets = [getattr(form, name) for name in pace_sets(PACES[0], 1)]
        chosen = [self.pace, form.width, form.height]
        self.pace.input(partial(pace_values, pixels), chosen, sets, **QUICK)
        gr.on([part.input for part in sets], lambda: None, None, self.pace, **QUICK)
        self.another.click(None, outputs=form.seed, js=ANOTHER_SEED, **QUICK)


def groups_shown(method: Any, auto: Any) -> list[Any]:
    """Which groups of controls are shown with a method."""
    downsamples, merges = method in ("todome", "ToDo"), method == "ToMe"
    shown = gr.Column(visible=downsamples), gr.Row(visible=not auto), gr.Column(visible=merges)
    return [*shown, gr.Row(visible=downsamples or merges)]


def pace_values(pixels: int | None, pace: Any, width: Any, height: Any) -> list[Any]:
    """Values of the controls that a choice from closest to fastest sets."""
    auto = automatic_factor(Form(width=width, height=height), pixels)
    return list(pace_sets(pace if pace in PACES else PACES[1], auto).values())


def lay_out_controls(first: Form, offer: Offer, step: int) -> Controls:
    """Controls with their first values.

    Args:
        first: The values.
        offer: What can be asked for.
        step: Pixels from one width to the next.
    """
    named: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    named["prompt"] = control(gr.Textbox, first.prompt, label="Prompt", lines=2, max_lines=8, elem_id="prompt")
    with gr.Row(elem_classes="buttons"):
        parts["draw"] = gr.Button("Draw", variant="primary", elem_id="draw")
        parts["stop"] = gr.Button("Stop", elem_id="stop")
    paces = [(pace.capitalize(), pace) for pace in PACES]
    parts["pace"] = control(gr.Radio, paces, value="close", label="Closest to the picture, or fastest", elem_id="pace")
    parts["compare"] = gr.Button("Compare all methods", size="md", elem_id="compare")
    with fold("Size, steps and seed"):
        more, parts["another"] = lay_out_picture(first, offer, step)
        named |= more
    with fold("Method and factors"):
        more, groups = lay_out_method(first)
        named, parts = {**named, **more}, {**parts, **groups}
    with fold("Start from a picture of yours"):
        parts["upload"] = html(macros().upload(), elem_id="upload", js_on_load=UPLOADS)
        parts["uploaded"] = html(elem_id="uploaded")
        about = "0.3 keeps most of it, 0.9 little"
        named["strength"] = slider(0.05, 1, first.strength, step=0.05, label="Strength", info=about)
    return Controls(form=Form(**{name: named[name] for name in Form._fields}), **parts)


def lay_out_picture(first: Form, offer: Offer, step: int) -> tuple[dict[str, Any], gr.Button]:
    """Controls that every method has, and the button for another seed."""
    named = {}
    least, most = -(-SMALLEST // step) * step, offer.side // step * step
    with gr.Row():
        named["width"] = slider(least, most, first.width, step=step, label="Width")
        named["height"] = slider(least, most, first.height, step=step, label="Height")
    with gr.Row():
        named["steps"] = slider(1, offer.steps, first.steps, step=1, label="Steps")
        named["guidance"] = slider(0, GUIDANCE, first.guidance, step=0.5, label="Guidance")
    with gr.Row(elem_id="seeds"):
        named["seed"] = control(gr.Number, first.seed, min_width=120, precision=0, label="Seed")
        another = gr.Button("Another seed", size="sm", min_width=120)
    about = "Each with a seed of its own"
    named["count"] = slider(1, PICTURES, first.count, step=1, label="Pictures", info=about)
    choices = [("The model's own", OWN), *((known.title, name) for name, known in SCHEDULERS.items())]
    named["scheduler"] = control(gr.Dropdown, choices, value=first.scheduler, label="Scheduler")
    about = "What to keep away from"
    named["negative"] = control(gr.Textbox, first.negative, label="Negative prompt", placeholder=about, lines=1)
    return named, another


def lay_out_method(first: Form) -> tuple[dict[str, Any], dict[str, Any]]:
    """Controls of the methods, and the groups of them that are shown with one method alone."""
    named, groups = {}, {}
    choices = [(NAMES.get(method, method), method) for method in METHODS]
    named["method"] = control(gr.Radio, choices, value=first.method, label="Method", info=DIFFERENCE)
    with gr.Column() as groups["factors"]:
        about = "1 up to 64 x 64 tokens, where it changes nothing"
        named["auto"] = control(gr.Checkbox, first.auto, label="Factor by the size (automatic)", info=about)
        with gr.Row(visible=not first.auto) as groups["boxes"]:
            about = "2 looks at 1 token in 4", "Deeper layers; 1 is full attention"
            named["factor"] = control(
                gr.Number, first.factor, min_width=120, label="Factor, level 1", info=about[0], step=0.5
            )
            named["factor2"] = control(
                gr.Number, first.factor2, min_width=120, label="Factor, level 2", info=about[1], step=0.5
            )
    with gr.Column(visible=False) as groups["merging"]:
        most = 1 - 1 / int(STRIDES[-1]) ** 2
        named["ratio"] = slider(0, most, first.ratio, label="Ratio", info="Share of tokens that are merged")
        about = "Larger ones allow more"
        named["stride"] = control(gr.Radio, list(STRIDES), value=first.stride, label="Stride", info=about)
    with gr.Row() as groups["window"]:
        about = "of the steps; full attention before", "and after"
        named["start"] = slider(0, 1, first.start, step=0.05, label="From", info=about[0])
        named["stop"] = slider(0, 1, first.stop, step=0.05, label="To", info=about[1])
    return named, groups
