"""Builders of the hosts' models: real classes with tiny random weights, no downloads; and one way to call them all."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from diffusers import (
    ControlNetModel,
    UNet2DConditionModel,
    UNet3DConditionModel,
    UNetMotionModel,
    UNetSpatioTemporalConditionModel,
)
from ldm.modules.diffusionmodules.openaimodel import UNetModel
from torch import Tensor, nn

from .copies import built_once

WIDTH = 16  # of a word
SMALL: dict[str, Any] = {"layers_per_block": 1, "norm_num_groups": 4, "cross_attention_dim": WIDTH}
FRAMES = 2


def lively(build: Callable[[], Any]) -> Any:
    """Seeded weights, none of them zero: hosts start their last layers at zero, which would hide all else."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build().eval()
        for parameter in model.parameters():
            if not parameter.any():
                nn.init.normal_(parameter, std=0.2)
    return model


@built_once
def unet(**changes: Any) -> UNet2DConditionModel:
    """SD 1.x: four levels, the last of them in the middle only."""
    config = {
        **SMALL,
        "sample_size": 16,
        "block_out_channels": (8, 8, 16, 16),
        "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        "attention_head_dim": 2,
    }
    return lively(lambda: UNet2DConditionModel(**{**config, **changes}))


def two_levels(suffix: str) -> dict[str, Any]:
    """Attention at both of two levels, in blocks of a kind."""
    down, up = (f"CrossAttn{way}Block{suffix}" for way in ("Down", "Up"))
    return {"block_out_channels": (8, 16), "down_block_types": (down, down), "up_block_types": (up, up)}


def small_unet(**changes: Any) -> UNet2DConditionModel:
    """Two levels of attention: enough wherever the depth of the model is not the point."""
    return unet(**{**two_levels("2D"), **changes})


def mini_unet(**changes: Any) -> UNet2DConditionModel:
    """One layer with attention and little else: for what takes long, such as compiling."""
    blocks = {"down_block_types": ("CrossAttnDownBlock2D",), "up_block_types": ("UpBlock2D",), "mid_block_type": None}
    return unet(**{"block_out_channels": (8,), **blocks, **changes})


def two_levels_unet() -> UNet2DConditionModel:
    """As `mini_unet`, with a layer of attention at each of two levels."""
    down, up = ("CrossAttnDownBlock2D",) * 2, ("UpBlock2D",) * 2
    return mini_unet(block_out_channels=(8, 8), down_block_types=down, up_block_types=up)


def one_level_unet(**changes: Any) -> UNet2DConditionModel:
    """As small as a UNet can be, for runs of many steps; frozen, as in a loop without `no_grad`."""
    blocks = {"down_block_types": ("CrossAttnDownBlock2D",), "up_block_types": ("CrossAttnUpBlock2D",)}
    return unet(**{"block_out_channels": (8,), "mid_block_type": None, **blocks, **changes}).requires_grad_(False)


def sdxl(**changes: Any) -> UNet2DConditionModel:
    """No attention in the first block, one and two blocks in a row in the others, text and size embeddings."""
    config = {
        "block_out_channels": (8, 8, 16),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "transformer_layers_per_block": (1, 1, 2),
        "attention_head_dim": (2, 2, 4),
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 6 * 8 + WIDTH,
    }
    return unet(**{**config, **changes})


def mini_sdxl() -> UNet2DConditionModel:
    """Two levels, of which the second one alone has attention, once on the way down and once in the middle."""
    return sdxl(
        block_out_channels=(8, 8),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=(1, 2),
        attention_head_dim=2,
    )


@built_once
def controlnet() -> ControlNetModel:
    return lively(
        lambda: ControlNetModel(
            **SMALL,
            block_out_channels=(8, 16),
            down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            attention_head_dim=2,
            conditioning_embedding_out_channels=(8, 8),
        )
    )


@built_once
def motion_unet() -> UNetMotionModel:
    heads: dict[str, Any] = {"num_attention_heads": 2, "motion_num_attention_heads": 2}
    return lively(lambda: UNetMotionModel(**SMALL, **two_levels("Motion"), **heads))


@built_once
def video_unet() -> UNetSpatioTemporalConditionModel:
    """Stable Video Diffusion. Its normalisations want 32 channels."""
    return lively(
        lambda: UNetSpatioTemporalConditionModel(
            block_out_channels=(32, 32),
            layers_per_block=1,
            down_block_types=("CrossAttnDownBlockSpatioTemporal", "CrossAttnDownBlockSpatioTemporal"),
            up_block_types=("CrossAttnUpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
            num_attention_heads=(2, 4),
            cross_attention_dim=WIDTH,
            addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=3 * 8,
            num_frames=FRAMES,
        )
    )


@built_once
def unet_3d() -> UNet3DConditionModel:
    return lively(lambda: UNet3DConditionModel(**SMALL, **two_levels("3D"), attention_head_dim=4))


@built_once
def ldm_unet(**changes: Any) -> UNetModel:
    """The original code of CompVis and Stability. Its normalisations want 32 channels."""
    config: dict[str, Any] = {
        "image_size": 32,
        "in_channels": 4,
        "out_channels": 4,
        "model_channels": 32,
        "num_res_blocks": 1,
        "attention_resolutions": [1, 2],
        "channel_mult": (1, 1),
        "num_heads": 2,
        "use_spatial_transformer": True,
        "context_dim": WIDTH,
        "legacy": False,
        "use_checkpoint": False,
    }
    return lively(lambda: UNetModel(**{**config, **changes}))


def ldm_unet_v2() -> UNetModel:
    return ldm_unet(num_heads=-1, num_head_channels=16, use_linear_in_transformer=True)


def model_of(target: Any) -> nn.Module:
    return target if isinstance(target, nn.Module) else target.model.diffusion_model


def run(target: Any, **inputs: Any) -> Tensor:
    """Calls a model without gradients; several outputs (ControlNet) become one."""
    with torch.no_grad():
        return flat(model_of(target)(**inputs))


def flat(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    if hasattr(output, "sample"):
        return output.sample
    return torch.cat([residual.flatten() for residual in (*output[0], output[1])])


class LatentDiffusion(nn.Module):
    """Where users of CompVis' code have their UNetModel; tomesd wants it to be a module."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.diffusion_model = model


def latent_diffusion() -> LatentDiffusion:
    return LatentDiffusion(ldm_unet())


def wrapped(build: Callable[[], nn.Module]) -> Callable[[], Any]:
    """The way CompVis' and Stability's checkpoints hold their model."""
    return lambda: SimpleNamespace(model=SimpleNamespace(diffusion_model=build()))
