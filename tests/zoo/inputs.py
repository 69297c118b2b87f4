"""What the hosts' models are called with."""

from typing import Any

import torch
from torch import Tensor

from .models import FRAMES, WIDTH

Grid = tuple[int, int]

TEXT = 7  # words in a prompt; no grid here has as many tokens


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def text(batch: int) -> Tensor:
    return noise(batch, TEXT, WIDTH)


def unet_inputs(batch: int = 2, grid: Grid = (16, 18)) -> dict[str, Any]:
    return {
        "sample": noise(batch, 4, *grid),
        "timestep": torch.tensor(500),
        "encoder_hidden_states": text(batch),
    }


def sdxl_inputs(batch: int = 2) -> dict[str, Any]:
    sizes = torch.tensor([[256, 288, 0, 0, 256, 288]]).expand(batch, -1)
    return unet_inputs(batch, (32, 36)) | {
        "added_cond_kwargs": {"text_embeds": noise(batch, WIDTH), "time_ids": sizes},
    }


def gligen_inputs(batch: int = 2) -> dict[str, Any]:
    boxes = {"boxes": noise(batch, 2, 4).sigmoid(), "positive_embeddings": noise(batch, 2, WIDTH)}
    gligen = boxes | {"masks": torch.ones(batch, 2)}
    return unet_inputs(batch) | {"cross_attention_kwargs": {"gligen": gligen}}


def controlnet_inputs(batch: int = 2) -> dict[str, Any]:
    return unet_inputs(batch) | {"controlnet_cond": noise(batch, 3, 32, 36).sigmoid()}


def clip_inputs(batch: int = 1) -> dict[str, Any]:
    """(batch, channels, frames, height, width)"""
    return unet_inputs(batch) | {"sample": noise(batch, 4, FRAMES, 16, 18)}


def animation_inputs(batch: int = 1) -> dict[str, Any]:
    """UNetMotionModel wants the prompt once per frame."""
    return clip_inputs(batch) | {"encoder_hidden_states": text(batch).repeat_interleave(FRAMES, 0)}


def video_inputs(batch: int = 1) -> dict[str, Any]:
    """(batch, frames, channels, height, width)"""
    sample, ids = noise(batch, FRAMES, 8, 16, 18), torch.tensor([[6.0, 127.0, 0.02]]).expand(batch, -1)
    return unet_inputs(batch) | {"sample": sample, "added_time_ids": ids}


def ldm_inputs(batch: int = 2) -> dict[str, Any]:
    return {"x": noise(batch, 4, 16, 18), "timesteps": torch.full((batch,), 500), "context": text(batch)}


def sgm_inputs(batch: int = 2) -> dict[str, Any]:
    return ldm_inputs(batch) | {"additional_tokens": noise(batch, 2, 8), "n_times_crossframe_attn_in_self": batch}
