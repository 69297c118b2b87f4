"""UNets in the shapes people run, with random weights: speed does not depend on what they have learnt."""

from typing import Any

import torch
from diffusers import UNet2DConditionModel

SHAPES: dict[str, dict[str, Any]] = {
    "sd15": {"sample_size": 64, "cross_attention_dim": 768, "attention_head_dim": 8},
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
}


def make_unet(shape: str, device: str, dtype: torch.dtype) -> Any:
    with torch.device(device):
        unet = UNet2DConditionModel(**SHAPES[shape])
    return unet.to(dtype=dtype, memory_format=torch.channels_last).eval().requires_grad_(False)  # pyright: ignore


def make_inputs(unet: Any, px: int, batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of one denoiser call; batch 2 is one picture with guidance. By position: tomesd needs that."""
    tensor = next(unet.parameters()).new_empty
    sample, text = tensor(batch, 4, px // 8, px // 8), tensor(batch, 77, unet.config.cross_attention_dim)
    args = (sample.normal_(), torch.tensor(500, device=unet.device), text.normal_())
    if unet.config.addition_embed_type != "text_time":
        return args, {}
    added = {"text_embeds": tensor(batch, 1280).normal_(), "time_ids": tensor(batch, 6).fill_(px)}
    return args, {"added_cond_kwargs": added}
