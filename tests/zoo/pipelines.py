"""Tiny pipelines of random parts, and the pictures they draw."""

from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionInpaintPipeline,
    StableDiffusionPipeline,
)
from torch import Tensor

from .copies import built_once
from .inputs import TEXT, Grid, noise, text
from .models import WIDTH, lively, one_level_unet

SIDE = 8  # of the latents that are drawn, hence of the token grid of level 1


@built_once
def tiny_vae() -> AutoencoderKL:
    """Two levels: a picture has twice the sides of its latents."""
    blocks: Any = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    widths: Any = {"block_out_channels": (4, 4), "norm_num_groups": 2, "latent_channels": 4}
    return lively(lambda: AutoencoderKL(**blocks, **widths))


def ddim() -> DDIMScheduler:
    return DDIMScheduler(steps_offset=1, clip_sample=False)


def tiny_pipeline(scheduler: Any = None, unet: Any = None, kind: Any = StableDiffusionPipeline, **parts: Any) -> Any:
    """A Stable Diffusion pipeline. It is given `prompt_embeds`, so it needs no text encoder."""
    given = {"vae": tiny_vae(), "unet": unet or one_level_unet(), "scheduler": scheduler or ddim(), **parts}
    absent = dict.fromkeys(("text_encoder", "tokenizer", "safety_checker", "feature_extractor"))
    pipe = kind(**given, **absent, requires_safety_checker=False)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def draw(pipe: Any, steps: int = 10, grid: Grid = (SIDE, SIDE), **options: Any) -> Tensor:
    """One picture, as latents; the same every time."""
    height, width = (2 * side for side in grid)
    given = {
        "prompt_embeds": text(1),
        "negative_prompt_embeds": noise(1, TEXT, WIDTH, seed=1),
        "num_inference_steps": steps,
        "generator": torch.Generator().manual_seed(0),
        "output_type": "latent",
    }
    kind = type(pipe)
    if kind in (StableDiffusionImg2ImgPipeline, StableDiffusionInpaintPipeline):
        given["image"] = torch.linspace(0, 1, 3 * height * width).view(1, 3, height, width)
    if kind is StableDiffusionInpaintPipeline:
        given["mask_image"] = (torch.arange(height * width).view(1, 1, height, width) % 3 == 0).float()
    if kind is not StableDiffusionImg2ImgPipeline:
        given |= {"height": height, "width": width}
    return pipe(**given | options).images


def picture(pipe: Any, **options: Any) -> Tensor:
    """Not square, in a few steps: for what is not about steps."""
    return draw(pipe, steps=4, grid=(16, 20), **options)
