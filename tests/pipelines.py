"""Tiny real models and pipelines with random weights, made without downloads, and what to watch them with."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionInpaintPipeline,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from ldm.modules.diffusionmodules.openaimodel import UNetModel
from torch import Tensor, nn

from todome import Patch

SIDE = 8  # latents, and the token grid of level 1


def tiny_unet(first_attention: int = 1, **config: Any) -> UNet2DConditionModel:
    """Two levels with attention; `first_attention=2` has none at full resolution, as SDXL."""
    torch.manual_seed(0)
    crossed = [level >= first_attention for level in (1, 2)]
    settings: dict[str, Any] = {
        "sample_size": SIDE,
        "layers_per_block": 1,
        "block_out_channels": (8, 16),
        "norm_num_groups": 4,
        "cross_attention_dim": 8,
        "attention_head_dim": 4,
        "down_block_types": tuple("CrossAttnDownBlock2D" if c else "DownBlock2D" for c in crossed),
        "up_block_types": tuple("CrossAttnUpBlock2D" if c else "UpBlock2D" for c in reversed(crossed)),
    }
    return UNet2DConditionModel(**settings | config).eval().requires_grad_(False)


def one_level_unet(**config: Any) -> UNet2DConditionModel:
    """As small as a UNet can be, for tests that call it often."""
    blocks: Any = {"down_block_types": ("CrossAttnDownBlock2D",), "up_block_types": ("CrossAttnUpBlock2D",)}
    return tiny_unet(block_out_channels=(8,), mid_block_type=None, **blocks, **config)


class LatentDiffusion(nn.Module):
    """Where users of CompVis' code have their UNetModel."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.diffusion_model = model


def tiny_ldm() -> Any:
    """The real UNetModel of CompVis with two levels; what begins as zero is filled, or attention would not matter."""
    torch.manual_seed(0)
    sizes = {"image_size": SIDE, "in_channels": 4, "out_channels": 4, "model_channels": 32, "num_res_blocks": 1}
    attention = {"attention_resolutions": [1, 2], "num_heads": 2, "use_spatial_transformer": True, "context_dim": 8}
    model = UNetModel(**sizes, **attention, channel_mult=[1, 2], use_checkpoint=False, legacy=False).eval()
    for parameter in model.requires_grad_(False).parameters():
        if not parameter.any():
            parameter.normal_(0, 0.1)
    return LatentDiffusion(model)


def tiny_vae() -> AutoencoderKL:
    return AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=4).requires_grad_(False)


def ddim() -> DDIMScheduler:
    return DDIMScheduler(steps_offset=1, clip_sample=False)


def tiny_pipeline(scheduler: Any = None, unet: Any = None, kind: Any = StableDiffusionPipeline, **more: Any) -> Any:
    parts = {"vae": tiny_vae(), "unet": unet or one_level_unet(), "scheduler": scheduler or ddim(), **more}
    absent = dict.fromkeys(("text_encoder", "tokenizer", "safety_checker", "feature_extractor"))
    pipeline = kind(**parts, **absent, requires_safety_checker=False)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def draw(pipeline: Any, steps: int = 10, **options: Any) -> Tensor:
    """One picture, as latents; the same every time."""
    prompt = torch.linspace(-1, 1, 24).view(1, 3, 8)
    given = {"prompt_embeds": prompt, "negative_prompt_embeds": -prompt, "num_inference_steps": steps}
    kind = type(pipeline)
    if kind in (StableDiffusionImg2ImgPipeline, StableDiffusionInpaintPipeline):
        given["image"] = torch.linspace(0, 1, 3 * SIDE * SIDE).view(1, 3, SIDE, SIDE)
    if kind is StableDiffusionInpaintPipeline:
        given["mask_image"] = (torch.arange(SIDE * SIDE).view(1, 1, SIDE, SIDE) % 3 == 0).float()
    if kind is not StableDiffusionImg2ImgPipeline:
        given |= {"height": SIDE, "width": SIDE}
    generator = torch.Generator().manual_seed(0)
    return pipeline(**given | options, generator=generator, output_type="latent").images


class Record:
    """What a model's first self-attention saw, call by call."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []  # the tokens that were keys
        self.turns: list[int] = []
        self.queries = torch.empty(0)

    def note_queries(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.queries = args[0][0]

    def note_keys(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        keys = args[0][0]
        self.rows.append((keys[:, None] == self.queries).all(-1).int().argmax(1).tolist())

    @property
    def reduced(self) -> list[bool]:
        return [len(rows) < len(self.queries) for rows in self.rows]


@contextmanager
def recording(unet: nn.Module, patch: Patch | None = None) -> Iterator[Record]:
    """Notes which tokens were keys, and the turn of the patch, at every call of the model."""
    record = Record()
    attention = next(m for name, m in unet.named_modules() if name.endswith("attn1"))
    hung = [
        attention.get_submodule("to_q").register_forward_pre_hook(record.note_queries),
        attention.get_submodule("to_k").register_forward_pre_hook(record.note_keys),
    ]
    if patch is not None:
        hung.append(attention.register_forward_hook(lambda *_: record.turns.append(patch.clock.turn)))
    try:
        yield record
    finally:
        for handle in hung:
            handle.remove()
