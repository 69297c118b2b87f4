"""Loading the scripts of extensions, and running them with a generation."""

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from modules import errors

AlwaysVisible = object()


class Script:
    infotext_fields: Any = None
    is_img2img = False
    args_from = args_to = 0

    def show(self, is_img2img: bool) -> Any:
        return True

    def ui(self, is_img2img: bool) -> list[Any]:
        return []

    def after_component(self, component: Any, **options: Any) -> None:
        pass

    def process(self, p: Any, *args: Any) -> None:
        pass

    def postprocess(self, p: Any, processed: Any, *args: Any) -> None:
        pass

    def process_before_every_sampling(self, p: Any, *args: Any, **kwargs: Any) -> None:
        pass


class ScriptClassData(NamedTuple):
    script_class: type[Script]
    path: str
    module: Any


scripts_data: list[ScriptClassData] = []


def load_script(path: Path) -> None:
    """The folder above scripts/ can be imported from only while a script is loaded; the module is named as its file."""
    before = sys.path
    sys.path = [str(path.parent.parent), *before]
    try:
        spec = importlib.util.spec_from_file_location(path.name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path = before
    for found in vars(module).values():
        if inspect.isclass(found) and issubclass(found, Script):
            scripts_data.append(ScriptClassData(found, str(path), module))


class ScriptRunner:
    """The scripts of one tab, with the controls they made in it."""

    def __init__(self, is_img2img: bool) -> None:
        self.inputs: list[Any] = [None]  # the dropdown of selectable scripts
        self.infotext_fields: list[Any] = []
        self.alwayson_scripts = [data.script_class() for data in scripts_data]
        for script in self.alwayson_scripts:
            script.is_img2img = is_img2img
        tab = "img2img" if is_img2img else "txt2img"
        self.width, self.height = (self.made(f"{tab}_{side}", gr.Slider(512)) for side in ("width", "height"))
        for script in self.alwayson_scripts:
            if script.show(is_img2img) is AlwaysVisible:
                script.args_from = len(self.inputs)
                self.inputs += script.ui(is_img2img)
                script.args_to = len(self.inputs)
                self.infotext_fields += script.infotext_fields or []
        self.made(f"html_log_{tab}", gr.HTML(""))
        self.result = self.made(f"generation_info_{tab}", gr.Textbox("", visible=False))

    def made(self, name: str, component: Any) -> Any:
        for script in self.alwayson_scripts:
            script.after_component(component, elem_id=name)
        return component

    def run(self, name: str, p: Any, *given: Any, **kwargs: Any) -> None:
        for script in self.alwayson_scripts:
            try:
                getattr(script, name)(p, *given, *p.script_args[script.args_from : script.args_to], **kwargs)
            except Exception as error:
                errors.noted.append(error)
