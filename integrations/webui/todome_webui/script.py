"""What the webui calls: settings, the accordion, and a pass before every sampling."""

from functools import partial
from typing import Any

import gradio as gr
from modules import processing, script_callbacks, scripts, shared

from .gains import expected_gain
from .passes import Pass, follow
from .report import latest
from .settings import CONTROLS, DEFAULTS, PREFIX, SAME, SECTION, TITLE, VERSION, chosen, complete
from .xyz import add_axes

AT_ONCE = {"show_progress": "hidden", "queue": False}


class TokenDownsampling(scripts.Script):
    """Runs with every generation, and does nothing unless a factor, or the method merging, is set."""

    size: tuple[Any, ...] = ()  # the controls of width and height
    wanted = False  # whether the generation that was begun last has a pass to reduce

    def title(self) -> str:
        return "Token Downsampling"  # by which requests to the API name it

    def show(self, is_img2img: bool) -> Any:
        return scripts.AlwaysVisible

    def ui(self, is_img2img: bool) -> list[Any]:
        hidden = "factor_hr" if is_img2img else "factor_img2img"
        with gr.Accordion(TITLE, open=False):
            self.gain = gr.HTML(partial(self.expect, 512, 512, False))  # called when the page is opened
            override = gr.Checkbox(False, label="Override the settings with these")
            controls = [control_for(name, visible=name != hidden) for name in CONTROLS]
            self.report = gr.HTML()
        self.inputs = [override, *controls]
        names = ["ToDo override", *(control.infotext for control in CONTROLS.values())]
        self.infotext_fields = list(zip([override, *controls], names, strict=True))
        self.paste_field_names = names
        return self.inputs

    def after_component(self, component: Any, **options: Any) -> None:
        """Called with each component of the webui: the size comes before the accordion, the result after it.

        The result is a textbox that nobody sees. Text that is seen says in Forge's gradio that it changed whenever
        anything on the page does, the answer to it too: a page would ask for the report without end.
        """
        tab = "img2img" if self.is_img2img else "txt2img"
        name = options.get("elem_id")
        if name in (f"{tab}_width", f"{tab}_height"):
            self.size = (*self.size, component)
        elif name == f"generation_info_{tab}" and len(self.size) == 2:
            inputs = [*self.size, *self.inputs]
            for changed in inputs:
                changed.change(self.expect, inputs=inputs, outputs=[self.gain], **AT_ONCE)
            component.change(latest.page, inputs=[], outputs=[self.report], **AT_ONCE)

    def expect(self, width: int, height: int, override: bool, *values: Any) -> str:
        settings = chosen(shared.opts, self, override, values)
        return f"<p>{expected_gain(width, height, settings, settings.factor_img2img if self.is_img2img else SAME)}</p>"

    def process(self, p: Any, override: bool = False, *values: Any) -> None:
        latest.clear()
        settings = chosen(shared.opts, p, override, values)
        own = own_factors(p)
        passes = [*(getattr(settings, name) for name in own), *([] if is_img2img(p) else [SAME])]
        for name in (VERSION, *(control.infotext for control in CONTROLS.values())):
            p.extra_generation_params.pop(name, None)  # the cells of an XYZ plot share them
        self.wanted = not all(map(settings.off, passes))
        if self.wanted:
            p.extra_generation_params.update(settings.infotext(own))

    def postprocess(self, p: Any, processed: Any, *values: Any) -> None:
        """Some scripts do the sampling themselves, and no pass is ever begun."""
        if self.wanted and not latest.lines and not shared.state.interrupted:
            line = "nothing was reduced. The chosen script draws in its own way."
            print(f"todome: {line}")
            latest.add(line)
            processed.comments += f"todome: {line}"

    def process_before_every_sampling(self, p: Any, override: bool = False, *values: Any, **kwargs: Any) -> None:
        settings = chosen(shared.opts, p, override, values)
        title, own = "first pass", SAME
        if is_img2img(p):
            title, own = "img2img", settings.factor_img2img
        elif p.is_hr_pass:
            title, own = "hires pass", settings.factor_hr
        if not settings.off(own):
            Pass(p, title, partial(settings.lever, own))


def is_img2img(p: Any) -> bool:
    return isinstance(p, processing.StableDiffusionProcessingImg2Img)


def own_factors(p: Any) -> list[str]:
    """The fields of own factors that a generation has a pass for."""
    if is_img2img(p):
        return ["factor_img2img"]
    return ["factor_hr"] if p.enable_hr else []


def control_for(name: str, **changes: Any) -> Any:
    control = CONTROLS[name]
    return getattr(gr, control.component)(value=DEFAULTS[name], label=control.label, **control.limits, **changes)


def add_settings() -> None:
    for name, control in CONTROLS.items():
        component, limits = getattr(gr, control.component), dict(control.limits)
        option = shared.OptionInfo(DEFAULTS[name], control.label, component, limits, infotext=control.infotext)
        option.info(control.info)
        option.section = SECTION
        shared.opts.add_option(PREFIX + name, option)


def register() -> None:
    script_callbacks.on_ui_settings(add_settings)
    script_callbacks.on_before_ui(add_axes)
    script_callbacks.on_infotext_pasted(complete)
    script_callbacks.on_cfg_denoiser(follow)
