"""A small world for the snippets of the pages: tiny pipelines instead of the hub's, a CPU instead of a GPU.

Everything is scaled together: a picture has 1/32 of the sides that are asked for, its latents half of those instead of
an eighth, so grids have 1/64 of the tokens, and "auto" leaves 1/64 of the keys. Factors come out as they would.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from PIL import Image
from transformers import CLIPTextConfig, CLIPTextModelWithProjection
from zoo import WIDTH, controlnet, ddim, latent_diffusion, lively, noise, small_unet, talking, text
from zoo.models import sdxl
from zoo.pipelines import tiny_vae

import todome

SMALLER, KEYS = 32, 4096 // 64
STEPS, FRAMES = 3, 2  # at most
SIDE = 512 // SMALLER // 2  # of the latents of a pipeline that is not told a size
PIPELINES = [
    diffusers.AnimateDiffPipeline,
    diffusers.StableDiffusionControlNetPipeline,
    diffusers.StableDiffusionImg2ImgPipeline,
    diffusers.StableDiffusionInpaintPipeline,
    diffusers.StableDiffusionPipeline,
    diffusers.StableDiffusionXLPipeline,
]
INPUTS = ("picture.png", "mask.png", "edges.png")


def scaled(call: Callable[..., Any]) -> Callable[..., Any]:
    """A pipeline's call with everything that takes time made smaller."""
    signature = inspect.signature(call)

    def smaller(name: str, value: Any) -> Any:
        if isinstance(value, Image.Image):
            return value.resize((value.width // SMALLER, value.height // SMALLER))
        most = {"num_inference_steps": STEPS, "num_frames": FRAMES}
        if name in most:
            return min(value, most[name])
        return value // SMALLER if name in ("height", "width") and value else value

    @functools.wraps(call)
    def called(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options)
        given.apply_defaults()
        given.arguments = {name: smaller(name, value) for name, value in given.arguments.items()}
        return call(*given.args, **given.kwargs)

    return called


def tiny(kind: Any, name: str, **parts: Any) -> Any:
    """What a pipeline's from_pretrained gives here."""
    assert name.count("/") == 1, f"{name} is no hub id"
    unet = sdxl() if kind is diffusers.StableDiffusionXLPipeline else small_unet(sample_size=SIDE)
    unet.register_to_config(sample_size=SIDE)
    known = inspect.signature(kind.__init__).parameters
    absent = [part for part, of in known.items() if part != "self" and of.default is inspect.Parameter.empty]
    given: dict[str, Any] = dict.fromkeys(absent) | {"vae": tiny_vae(), "unet": unet, "scheduler": ddim(), **parts}
    if "requires_safety_checker" in known:
        given["requires_safety_checker"] = False
    pipe = talking(kind(**given))
    if "text_encoder_2" in known:
        with_second_encoder(pipe)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def with_second_encoder(pipe: Any) -> None:
    """SDXL has two; here, as in its refiner, the second one does it all."""
    config = CLIPTextConfig(**pipe.text_encoder.config.to_dict() | {"projection_dim": WIDTH})
    second = lively(lambda: CLIPTextModelWithProjection(config))
    pipe.register_modules(text_encoder_2=second, tokenizer_2=pipe.tokenizer, text_encoder=None, tokenizer=None)


def motion_adapter() -> Any:
    sizes: Any = {"block_out_channels": (8, 16), "motion_layers_per_block": 1, "motion_norm_num_groups": 4}
    return lively(lambda: diffusers.MotionAdapter(**sizes, motion_num_attention_heads=2))


MODELS: dict[Any, Callable[[], Any]] = {
    diffusers.ControlNetModel: controlnet,
    diffusers.MotionAdapter: motion_adapter,
    diffusers.UNet2DConditionModel: small_unet,
}


@pytest.fixture
def small_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder but for the pictures that snippets open; tiny models; every size scaled."""
    monkeypatch.chdir(tmp_path)
    for name in INPUTS:
        Image.new("RGB", (1024, 1024), "white").save(name)
    for kind in PIPELINES:
        monkeypatch.setattr(kind, "__call__", scaled(kind.__call__))
    here = lambda self, *_, **__: self  # noqa: E731
    monkeypatch.setattr(diffusers.DiffusionPipeline, "from_pretrained", classmethod(tiny))
    monkeypatch.setattr(diffusers.DiffusionPipeline, "to", here)
    monkeypatch.setattr(diffusers.ModelMixin, "from_pretrained", classmethod(lambda kind, *_, **__: MODELS[kind]()))
    monkeypatch.setattr(diffusers.ModelMixin, "to", here)
    monkeypatch.setattr(diffusers.SchedulerMixin, "from_pretrained", classmethod(lambda *_, **__: ddim()))
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    monkeypatch.setattr("todome.tools.timing.Timing.turns", lambda _, ways: iter(ways))  # a single round
    for module in ("todome.tools.tuning.layer_times", "todome.tools.tuning.sensitivity"):
        monkeypatch.setattr(f"{module}.FACTORS", (2,))
    for module in ("todome.hooks.tokens", "todome.levers.downsample"):  # the first has read it from the second
        monkeypatch.setattr(f"{module}.AUTO_KEYS", KEYS)
    return tmp_path


@pytest.fixture
def reader(small_world: Path) -> dict[str, Any]:
    """The names a reader has before the first line of a page."""
    pipe = tiny(diffusers.StableDiffusionPipeline, "some/pipeline")
    own: dict[str, Any] = {"pipe": pipe, "unet": pipe.unet, "scheduler": pipe.scheduler, "model": latent_diffusion()}
    tensors = {"latents": noise(1, 4, 16, 16), "x": noise(1, 4, 16, 16), "text": text(1)}
    return {**own, **tensors, "timesteps": torch.tensor([[900], [500], [100]]), "todome": todome, "torch": torch}
