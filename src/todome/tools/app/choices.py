"""Choices on the page: what the controls mean in words and in time, which of them count, what sets several at once."""

from dataclasses import dataclass
from typing import Any

import gradio as gr

from ..generate import Settings
from . import views
from .estimates import Estimates, in_words
from .form import Form, Offer
from .layout import Controls
from .limits import Limits, check_number, check_whole, refused
from .presets import PACES, SizePreset, automatic_factor, explained, pace_of, pace_sets, size_of

NOT_YET = "How long it takes is being measured."
NO_CHANGE = "The automatic factor changes nothing at this size, so there would be nothing to compare."
Changes = dict[Any, Any]  # of the page: what its parts become


@dataclass(frozen=True)
class Choices:
    """The controls, and what is needed to explain what they are set to."""

    controls: Controls
    sizes: list[SizePreset]
    pixels: int | None  # of a token, on a side
    estimates: Estimates
    limits: Limits
    base: Settings  # model, device and dtype
    offer: Offer

    @property
    def explained_parts(self) -> list[Any]:
        """Parts of the page that `describe` changes."""
        controls = self.controls
        parts = [controls.estimate, controls.setting, controls.pace, controls.size]
        return [
            *parts,
            controls.form.factor,
            controls.form.factor2,
            controls.factors,
            controls.merging,
            controls.window,
        ]

    def describe(self, *values: Any) -> Changes:
        return self.described(Form(*values))

    def described(self, form: Form) -> Changes:
        """What the controls mean, in words and in time, and which of them count."""
        controls, downsamples, merges = self.controls, form.method in ("todome", "ToDo"), form.method == "ToMe"
        auto = self.automatic(form)
        boxes = gr.Number(interactive=not form.auto)
        return {
            controls.estimate: self.estimate(form),
            controls.setting: self.setting(form, auto),
            controls.pace: pace_of(form, auto),
            controls.size: size_of(form, self.sizes),
            controls.form.factor: boxes,
            controls.form.factor2: boxes,
            controls.factors: gr.Column(visible=downsamples),
            controls.merging: gr.Column(visible=merges),
            controls.window: gr.Column(visible=downsamples or merges),
        }

    def automatic(self, form: Form) -> int | None:
        """The automatic factor at the size that is set; None where it is not known, as of models that are not open."""
        try:
            size = check_whole("width", form.width, 1, 2**20), check_whole("height", form.height, 1, 2**20)
        except ValueError:
            return None
        return automatic_factor(size, self.pixels) if form.model in ("", self.base.model) else None

    def setting(self, form: Form, auto: int | None) -> str:
        if form.method == "plan":
            return views.setting("Your plan: a factor for each layer, as it was found on the Tune tab.")
        try:
            said = explained(form.reduction(), auto)
        except ValueError as error:
            return views.setting("", str(error))
        unchanged = form.method in ("todome", "ToDo") and form.auto and auto == 1
        return views.setting("" if unchanged else said, NO_CHANGE if unchanged else "", 2 if unchanged else 0)

    def estimate(self, form: Form) -> str:
        if form.method == "plan":  # about as fast as the usual factors
            form = form._replace(method="todome")
        try:
            order = form.order(self.limits, self.base, self.offer)
        except ValueError as error:
            return views.estimate(str(error))
        seconds = self.estimates.total(order.pictures())
        if seconds is None:
            return views.estimate(NOT_YET)
        number = len(order.pictures())
        what = {1: "", 2: " for both"}.get(number, f" for {number} pictures")
        return views.estimate(f"About {in_words(seconds)}{what} on this machine.")

    def choose_pace(self, pace: Any, *values: Any) -> Changes:
        form = Form(*values)
        sets = pace_sets(pace, self.automatic(form)) if pace in PACES else {}
        return self.set_fields(sets)

    def choose_factor(self, event: gr.EventData) -> Changes:
        factor = event._data.get("factor") if isinstance(event._data, dict) else None
        return self.set_fields({"auto": False, "factor": check_number("factor", factor, 1, 16), "factor2": 1})

    def choose_size(self, name: Any) -> list[int]:
        size = next((preset.size for preset in self.sizes if preset.name == name), None)
        if size is None:
            raise refused("size", name, "one of those that are offered", "Choose one of them")
        return list(size)

    def set_fields(self, sets: dict[str, Any]) -> Changes:
        return {getattr(self.controls.form, field): value for field, value in sets.items()}
