"""A webui to test in: the double of its modules, the extension, and a model of real ldm code."""

import copy
import functools
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from comfy_host import WORDS, tiny_model, watched
from installed import installed
from torch import Tensor
from zoo import WIDTH, LatentDiffusion, ldm_unet, recording

from todome.hooks.attaching import patches_on
from todome.levers.lever import stateless_randint
from todome.tokens.grid import Grid, downsampling_table, kept_rows
from todome.tools.install import WEBUI

DOUBLE = Path(__file__).parent / "webui_double"
EXTENSION = installed(WEBUI)
THEIRS = ("modules", "gradio", "todome_webui", "find_todome")


@contextmanager
def own_modules() -> Iterator[None]:
    """The double and the extension are imported anew, and forgotten afterwards."""
    path, before = list(sys.path), dict(sys.modules)
    forget_theirs()
    sys.path.insert(0, str(DOUBLE))
    try:
        yield
    finally:
        sys.path[:] = path
        forget_theirs()
        sys.modules.update({name: module for name, module in before.items() if is_theirs(name)})


def is_theirs(name: str) -> bool:
    return name.split(".")[0] in THEIRS


def forget_theirs() -> None:
    for name in filter(is_theirs, list(sys.modules)):
        del sys.modules[name]


class Model(LatentDiffusion):
    """What the webui calls its model by."""

    def apply_model(self, x: Tensor, sigma: float) -> Tensor:
        text = torch.ones(len(x), 3, WIDTH)
        return self.model.diffusion_model(x, torch.full((len(x),), sigma * 999), context=text)  # type: ignore


@functools.cache
def built_once() -> Model:
    return Model(ldm_unet())


def ldm_model() -> Any:
    return copy.deepcopy(built_once())


class WebUI:
    """The webui after it has started: scripts loaded, settings registered, both tabs made."""

    def __init__(self, sd_model: Any = None) -> None:
        names = ("shared", "errors", "scripts", "script_callbacks", "processing", "infotext_utils", "sd_samplers")
        for name in names:
            setattr(self, name, importlib.import_module(f"modules.{name}"))
        self.shared.sd_model = sd_model or ldm_model()
        self.scripts.load_script(DOUBLE / "scripts" / "xyz_grid.py")
        self.scripts.load_script(EXTENSION / "scripts" / "todome_webui.py")
        self.script_callbacks.call("ui_settings")
        self.script_callbacks.call("before_ui")
        self.tabs = {tab: self.scripts.ScriptRunner(tab == "img2img") for tab in ("txt2img", "img2img")}

    def __getattr__(self, name: str) -> Any:  # the modules
        raise AttributeError(name)

    @property
    def unet(self) -> Any:
        return self.shared.sd_model.model.diffusion_model

    def set(self, **values: Any) -> None:
        for name, value in values.items():
            assert f"token_downsampling_{name}" in self.shared.opts.data_labels
            setattr(self.shared.opts, f"token_downsampling_{name}", value)

    def control(self, label: str, tab: str = "txt2img") -> Any:
        return next(control for control in self.tabs[tab].inputs[1:] if control.label == label)

    def generation(self, tab: str = "txt2img", **fields: Any) -> Any:
        kind = {"txt2img": "StableDiffusionProcessingTxt2Img", "img2img": "StableDiffusionProcessingImg2Img"}[tab]
        given = [getattr(control, "value", None) for control in self.tabs[tab].inputs]
        return getattr(self.processing, kind)(self.tabs[tab], given, **fields)

    def draw(self, tab: str = "txt2img", **fields: Any) -> Any:
        done = self.processing.process_images(self.generation(tab, **fields))
        assert not self.errors.noted
        self.assert_untouched()
        return done

    def assert_untouched(self) -> None:
        assert not patches_on(self.unet)

    def counts(self, tab: str = "txt2img", **fields: Any) -> list[int]:
        """How many keys the first layer has, call by call."""
        return [len(rows) for rows in keys(self, tab, **fields)]

    def interrupt(self, now: bool = True) -> None:
        self.shared.state.interrupted = now


class ForgeModel:
    """Reads its settings anew at every call, and tells its UNet the noise level, but not the schedule."""

    def __init__(self, unet: Any) -> None:
        self.forge_objects = SimpleNamespace(unet=unet)

    def apply_model(self, x: Tensor, sigma: float) -> Tensor:
        unet, sigmas = self.forge_objects.unet, torch.full((len(x),), sigma)
        options = {**unet.model_options["transformer_options"], "sigmas": sigmas}
        words = torch.ones(len(x), 3, WORDS)
        return unet.model.diffusion_model(x, sigmas * 999, context=words, transformer_options=options)


class ForgeUI(WebUI):
    """Forge: its UNet calls patches as ComfyUI's does, and here it is that of ComfyUI."""

    def __init__(self, comfy: Any) -> None:
        self.patcher = tiny_model(comfy)
        super().__init__(ForgeModel(self.patcher))

    @property
    def objects(self) -> Any:
        return self.shared.sd_model.forge_objects

    @property
    def unet(self) -> Any:
        return self.patcher.model.diffusion_model

    def assert_untouched(self) -> None:
        assert self.objects.unet is self.patcher
        assert not self.patcher.model_options["transformer_options"]

    def counts(self, tab: str = "txt2img", **fields: Any) -> list[int]:
        with watched(self.patcher) as calls:
            self.draw(tab, **fields)
        layers = sum(type(m).__name__ == "BasicTransformerBlock" for m in self.unet.modules())
        return [kept for _, kept in calls[::layers]]


def expected_keys(grid: Grid, turn: int, factor: float = 2, phase: Any = "dither") -> list[int]:
    """What the first layer of a model keeps in a turn."""
    order = downsampling_table(grid, factor, phase, stateless_randint(0, 0))
    return kept_rows(order, turn).tolist()


def keys(webui: WebUI, tab: str = "txt2img", **fields: Any) -> list[list[int]]:
    """Which tokens were keys of the first layer, call by call."""
    with recording(webui.unet) as record:
        webui.draw(tab, **fields)
    return record.rows
