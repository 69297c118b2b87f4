"""Models to measure: a pipeline, or a UNet in the shape of a known one with random weights; and one call of it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ...errors import invalid_value
from ...patch import denoisers, is_pipeline
from ..devices import reachable_device, torch_dtype
from ..pipelines import EMBEDDED, Size, check_sides, check_size, denoiser, open_pipeline
from ..quiet import quiet_loading

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "sd15": {"sample_size": 64, "cross_attention_dim": 768, "attention_head_dim": 8},
    "sd21": {
        "sample_size": 96,
        "cross_attention_dim": 1024,
        "attention_head_dim": (5, 10, 20, 20),
        "use_linear_projection": True,
    },
    "sdxl": {
        "sample_size": 128,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "block_out_channels": (320, 640, 1280),
        "transformer_layers_per_block": (1, 2, 10),
        "attention_head_dim": (5, 10, 20),
        "cross_attention_dim": 2048,
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
    },
    "animatediff": {"_class_name": "UNetMotionModel", "sample_size": 64, "cross_attention_dim": 768},
    "svd": {"_class_name": "UNetSpatioTemporalConditionModel", "sample_size": 96, "num_frames": 25},
}
FRAMES = 16  # of a clip of AnimateDiff
PIXELS = 8  # on a side of one latent, in every architecture named here


def open_subject(
    model: str = EMBEDDED,
    device: str = "auto",
    dtype: str = "auto",
    *,
    loras: Sequence[str] = (),
    vae: str | None = None,
) -> Any:
    """A pipeline, or a UNet with random weights where the model is one of ARCHITECTURES."""
    if model not in ARCHITECTURES:
        pipe = open_pipeline(model, device, dtype, loras=loras, vae=vae)
        pipe.set_progress_bar_config(disable=True)
        return pipe
    for field, given in (("lora", loras), ("vae", vae)):
        if given:
            raise invalid_value(
                field, given, f"nothing, {model} has random weights", "Leave it out, or name a real model"
            )
    where = reachable_device(device)
    return random_unet(ARCHITECTURES[model], where, torch_dtype(dtype, where))


def random_unet(shape: dict[str, Any], device: torch.device, dtype: torch.dtype) -> Any:
    """Speed does not depend on what the weights have learnt."""
    own = {name: value for name, value in shape.items() if not name.startswith("_")}
    with quiet_loading() as diffusers, torch.device(device):
        model = getattr(diffusers, shape.get("_class_name", "UNet2DConditionModel"))
        unet = model(**own).to(device, dtype)  # SVD makes some on the CPU
    if device.type == "cuda":
        use_channels_last(unet)
    return unet.eval().requires_grad_(False)


def use_channels_last(model: torch.nn.Module) -> None:
    """GPUs convolve fastest in it. `Module.to` cannot be used: SVD also convolves over time, in another layout."""
    for weight in model.parameters():
        if weight.ndim == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class DenoiserCall:
    """One call of a denoiser, with the arguments a pipeline gives it at every step."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        return self.model(*self.args, **self.kwargs)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


def denoiser_call(target: Any, size: Size, pictures: int = 1) -> DenoiserCall:
    """The call that draws so many pictures of that size at once, with guidance."""
    if is_pipeline(target):
        return recorded_call(target, size, pictures)
    (model,) = denoisers(target)
    if getattr(getattr(model, "config", None), "cross_attention_dim", None) is None:
        allowed = "a pipeline, or a UNet of diffusers that is given text"
        raise invalid_value("target", type(model).__name__, allowed, "Pass the pipeline that calls it")
    check_latents(model, size)
    return DenoiserCall(model, *random_inputs(model, size, 2 * pictures))


def check_latents(model: Any, size: Size) -> None:
    """A UNet halves its latents at every stage but the last; odd ones are cut, which a benchmark should not mix in."""
    step = PIXELS * 2 ** (len(model.config.down_block_types) - 1)
    check_sides(size, step)


def random_inputs(unet: Any, size: Size, batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Latents, timestep and text, by position: tomesd needs that. A batch of a video model is one of clips."""
    width, height = size
    config, like = unet.config, next(unet.parameters())
    source = torch.Generator().manual_seed(0)  # the global one is the user's

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(batch, *shape, generator=source, device="cpu").to(like)

    grid, time = (height // PIXELS, width // PIXELS), torch.tensor(500, device=like.device)
    if type(unet).__name__ == "UNetSpatioTemporalConditionModel":  # a picture for the text; fps, motion, noise
        sample = noise(config.num_frames, config.in_channels, *grid)
        return (sample, time, noise(1, config.cross_attention_dim), noise(3)), {}
    if type(unet).__name__ == "UNetMotionModel":  # the text once for each frame
        text = noise(77, config.cross_attention_dim).repeat_interleave(FRAMES, 0)
        return (noise(config.in_channels, FRAMES, *grid), time, text), {}
    args = noise(config.in_channels, *grid), time, noise(77, config.cross_attention_dim)
    if config.addition_embed_type != "text_time":
        return args, {}
    sizes = torch.tensor([height, width, 0, 0, height, width], device="cpu")
    added = {"text_embeds": noise(1280), "time_ids": sizes.to(like).expand(batch, 6)}
    return args, {"added_cond_kwargs": added}


def own_size(target: Any) -> Size:
    """The size that a model draws unless told otherwise."""
    model = denoiser(target) if is_pipeline(target) else target
    scale = getattr(target, "vae_scale_factor", PIXELS)
    side = getattr(target, "default_sample_size", None) or model.config.sample_size  # of the latents
    height, width = (side, side) if isinstance(side, int) else side
    return width * scale, height * scale


class CallRecorded(Exception):
    """Ends a pipeline's run when what it was made for is known."""


def recorded_call(pipe: Any, size: Size, pictures: int) -> DenoiserCall:
    """The first call that the pipeline itself makes: it knows best what its denoiser needs."""
    check_size(pipe, size)
    model = denoiser(pipe)
    calls: list[DenoiserCall] = []

    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append(DenoiserCall(module, args, kwargs))
        raise CallRecorded

    noise = torch.Generator().manual_seed(0)  # the global one is the user's
    handle = model.register_forward_pre_hook(record, with_kwargs=True)
    try:
        with suppress(CallRecorded), torch.no_grad():
            pipe([""] * pictures, width=size[0], height=size[1], num_inference_steps=2, generator=noise)
    finally:
        handle.remove()
    return calls[0]
