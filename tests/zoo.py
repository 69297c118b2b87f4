"""The zoo: one small builder per host, real classes with tiny random weights, no downloads.

A host knows how to build its model, how to call it, and what a look at its code says todome must find there. What
todome itself believes is not asked here: the tests compare the two.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    ControlNetModel,
    DDIMScheduler,
    DiTTransformer2DModel,
    PixArtTransformer2DModel,
    StableDiffusionPipeline,
    UNet2DConditionModel,
    UNet3DConditionModel,
    UNetMotionModel,
    UNetSpatioTemporalConditionModel,
)
from ldm.modules.diffusionmodules.openaimodel import UNetModel
from torch import Tensor, nn
from torch.nn import functional as F

import todome

Grid = tuple[int, int]

TEXT = 7  # words in a prompt; no grid here has as many tokens
WIDTH = 16  # of a word
FRAMES = 3


# --------------------------------------------------------------------------------------------------- the hosts' models


def lively(build: Callable[[], Any]) -> Any:
    """Seeded weights, none of them zero: hosts start their last layers at zero, which would hide all else."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build().eval()
        for parameter in model.parameters():
            if not parameter.any():
                nn.init.normal_(parameter, std=0.2)
    return model


def unet(**changes: Any) -> UNet2DConditionModel:
    """SD 1.x: four levels, the last of them in the middle only."""
    config = {
        "sample_size": 16,
        "block_out_channels": (8, 8, 16, 16),
        "layers_per_block": 1,
        "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        "norm_num_groups": 4,
        "attention_head_dim": 2,
        "cross_attention_dim": WIDTH,
    }
    return lively(lambda: UNet2DConditionModel(**{**config, **changes}))


def small_unet(**changes: Any) -> UNet2DConditionModel:
    """Two levels of attention: enough wherever the depth of the model is not the point."""
    config = {
        "block_out_channels": (8, 16),
        "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    }
    return unet(**{**config, **changes})


def mini_unet(**changes: Any) -> UNet2DConditionModel:
    """Two blocks with attention at one level: for what takes long, such as compiling."""
    blocks = {"down_block_types": ("CrossAttnDownBlock2D",), "up_block_types": ("UpBlock2D",)}
    return unet(**{"block_out_channels": (8,), **blocks, **changes})


def sdxl() -> UNet2DConditionModel:
    """No attention in the first block, two and three blocks in a row in the others, text and size embeddings."""
    return unet(
        block_out_channels=(8, 8, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=(1, 2, 3),
        attention_head_dim=(2, 2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=6 * 8 + WIDTH,
    )


def controlnet() -> ControlNetModel:
    return lively(
        lambda: ControlNetModel(
            block_out_channels=(8, 16),
            layers_per_block=1,
            down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            norm_num_groups=4,
            attention_head_dim=2,
            cross_attention_dim=WIDTH,
            conditioning_embedding_out_channels=(8, 8),
        )
    )


def motion_unet() -> UNetMotionModel:
    return lively(
        lambda: UNetMotionModel(
            block_out_channels=(8, 16),
            layers_per_block=1,
            down_block_types=("CrossAttnDownBlockMotion", "CrossAttnDownBlockMotion"),
            up_block_types=("CrossAttnUpBlockMotion", "CrossAttnUpBlockMotion"),
            norm_num_groups=4,
            num_attention_heads=2,
            motion_num_attention_heads=2,
            cross_attention_dim=WIDTH,
        )
    )


def video_unet() -> UNetSpatioTemporalConditionModel:
    """Stable Video Diffusion. Its normalisations want 32 channels."""
    return lively(
        lambda: UNetSpatioTemporalConditionModel(
            block_out_channels=(32, 64),
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


def unet_3d() -> UNet3DConditionModel:
    return lively(
        lambda: UNet3DConditionModel(
            block_out_channels=(8, 16),
            layers_per_block=1,
            down_block_types=("CrossAttnDownBlock3D", "CrossAttnDownBlock3D"),
            up_block_types=("CrossAttnUpBlock3D", "CrossAttnUpBlock3D"),
            norm_num_groups=4,
            attention_head_dim=4,
            cross_attention_dim=WIDTH,
        )
    )


def pixart() -> PixArtTransformer2DModel:
    return lively(
        lambda: PixArtTransformer2DModel(
            num_attention_heads=2,
            attention_head_dim=4,
            num_layers=2,
            sample_size=32,
            cross_attention_dim=8,
            caption_channels=WIDTH,
            use_additional_conditions=False,
        )
    )


def dit() -> DiTTransformer2DModel:
    return lively(
        lambda: DiTTransformer2DModel(
            num_attention_heads=2, attention_head_dim=4, in_channels=4, num_layers=2, sample_size=32
        )
    )


def ldm_unet(**changes: Any) -> UNetModel:
    """The original code of CompVis and Stability. Its normalisations want 32 channels."""
    config: dict[str, Any] = {
        "image_size": 32,
        "in_channels": 4,
        "out_channels": 4,
        "model_channels": 32,
        "num_res_blocks": 1,
        "attention_resolutions": [1, 2],
        "channel_mult": (1, 2),
        "num_heads": 2,
        "use_spatial_transformer": True,
        "context_dim": WIDTH,
        "legacy": False,
        "use_checkpoint": False,
    }
    return lively(lambda: UNetModel(**{**config, **changes}))


def ldm_unet_v2() -> UNetModel:
    return ldm_unet(num_heads=-1, num_head_channels=16, use_linear_in_transformer=True)


# ------------------------------------------------------ sgm's signature: tokens in front of the queries, shared frames


class CrossAttention(nn.Module):
    def __init__(self, width: int, context_width: int) -> None:
        super().__init__()
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(context_width, width, bias=False)
        self.to_v = nn.Linear(context_width, width, bias=False)
        self.to_out = nn.Linear(width, width)

    def forward(self, x, context=None, mask=None, additional_tokens=None, n_times_crossframe_attn_in_self=0):
        extra = 0 if additional_tokens is None else additional_tokens.shape[1]
        x = x if additional_tokens is None else torch.cat([additional_tokens, x], 1)
        context = x if context is None else context
        query, key, value = self.to_q(x), self.to_k(context), self.to_v(context)
        if n_times_crossframe_attn_in_self:  # every frame attends to the first one of its group
            key, value = (t[::n_times_crossframe_attn_in_self] for t in (key, value))
            key, value = (t.repeat_interleave(len(x) // len(t), 0) for t in (key, value))
        return self.to_out(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))[:, extra:]


class BasicTransformerBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attn1, self.attn2 = CrossAttention(width, width), CrossAttention(width, WIDTH)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.ff = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x, context=None, additional_tokens=None, n_times_crossframe_attn_in_self=0):
        own = {"n_times_crossframe_attn_in_self": n_times_crossframe_attn_in_self}
        x = self.attn1(self.norm1(x), context=None, additional_tokens=additional_tokens, **own) + x
        x = self.attn2(self.norm2(x), context=context, additional_tokens=additional_tokens) + x
        return self.ff(self.norm3(x)) + x


class SpatialTransformer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.transformer_blocks = nn.ModuleList([BasicTransformerBlock(width)])

    def forward(self, x, context=None, **more):
        tokens = x.flatten(2).mT  # (batch, tokens, channels)
        for block in self.transformer_blocks:
            tokens = block(tokens, context=context, **more)
        return tokens.mT.reshape(x.shape) + x


class Downsample(nn.Conv2d):
    def forward(self, x, *_, **__):
        return super().forward(x)


class Upsample(nn.Conv2d):
    def forward(self, x, *_, **__):
        return super().forward(F.interpolate(x, scale_factor=2.0))


class SgmUNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        halve, double = Downsample(width, width, 3, 2, 1), Upsample(width, width, 3, 1, 1)
        self.entry, self.exit = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.input_blocks = nn.ModuleList([SpatialTransformer(width), halve])
        self.middle_block = SpatialTransformer(width)
        self.output_blocks = nn.ModuleList([double, SpatialTransformer(width)])

    def forward(self, x, timesteps, context=None, **more):
        x = self.entry(x) + (timesteps.view(-1, 1, 1, 1) / 1000).to(x.dtype)
        for stage in (*self.input_blocks, self.middle_block, *self.output_blocks):
            x = stage(x, context, **more)
        return self.exit(x)


# -------------------------------------------------------------------------------------------------------- their inputs


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def text(batch: int) -> Tensor:
    return noise(batch, TEXT, WIDTH)


def unet_inputs(batch: int = 2, grid: Grid = (16, 18), channels: int = 4) -> dict[str, Any]:
    return {
        "sample": noise(batch, channels, *grid),
        "timestep": torch.tensor(500),
        "encoder_hidden_states": text(batch),
    }


def sdxl_inputs(batch: int = 2) -> dict[str, Any]:
    sizes = torch.tensor([[256, 288, 0, 0, 256, 288]]).expand(batch, -1)
    return unet_inputs(batch, (32, 36)) | {
        "added_cond_kwargs": {"text_embeds": noise(batch, WIDTH), "time_ids": sizes},
    }


def lcm_inputs(batch: int = 2) -> dict[str, Any]:
    return unet_inputs(batch) | {"timestep_cond": noise(batch, 8)}


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


def pixart_inputs(batch: int = 2) -> dict[str, Any]:
    return {
        "hidden_states": noise(batch, 4, 32, 36),
        "timestep": torch.full((batch,), 500),
        "encoder_hidden_states": text(batch),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
    }


def dit_inputs(batch: int = 2) -> dict[str, Any]:
    labels = {"timestep": torch.full((batch,), 500), "class_labels": torch.full((batch,), 3)}
    return {"hidden_states": noise(batch, 4, 32, 32)} | labels


def ldm_inputs(batch: int = 2) -> dict[str, Any]:
    return {"x": noise(batch, 4, 16, 18), "timesteps": torch.full((batch,), 500), "context": text(batch)}


def sgm_inputs(batch: int = 2) -> dict[str, Any]:
    return ldm_inputs(batch) | {"additional_tokens": noise(batch, 2, 8), "n_times_crossframe_attn_in_self": batch}


# ----------------------------------------------------------------------------------------------------------- the hosts


@dataclass(frozen=True)
class Host:
    name: str
    build: Callable[[], Any]  # what todome.apply is given
    inputs: Callable[..., dict[str, Any]]
    grids: tuple[Grid, ...] = ((16, 18), (8, 9))  # of level 1, level 2, ...
    extra: int = 0  # keys that a self-attention sees besides those of the grid

    def __str__(self) -> str:
        return self.name

    @property
    def levels(self) -> int:
        return len(self.grids)

    def run(self, target: Any, **changes: Any) -> Tensor:
        return run(target, **{**self.inputs(), **changes})


def is_image_attention(name: str) -> bool:
    """Whether the attention of this name looks at the tokens of an image, in any host."""
    temporal = re.search(r"motion_modules|temp_attentions|temporal_transformer_blocks|transformer_in\.", name)
    return name.endswith("attn1") and temporal is None


@contextmanager
def recorded(target: Any, pattern: str) -> Iterator[dict[str, list[Tensor]]]:
    """What goes into the modules whose names match, by name: no word of todome's is taken for it."""
    found = {name: module for name, module in model_of(target).named_modules() if re.search(pattern, name)}
    seen: dict[str, list[Tensor]] = {name: [] for name in found}
    hooks = [
        module.register_forward_pre_hook(lambda _, args, to=seen[name]: to.append(args[0].detach().clone()))
        for name, module in found.items()
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def token_counts(host: Host, target: Any, pattern: str = r"\.to_k$") -> dict[str, int]:
    """How many tokens go into the modules whose names match; the keys of every attention, if not told otherwise."""
    with recorded(target, pattern) as seen:
        host.run(target)
    return {name.removesuffix(".to_k"): calls[-1].shape[1] for name, calls in seen.items()}


def image_keys(host: Host, target: Any) -> dict[str, int]:
    return {name: count for name, count in token_counts(host, target).items() if is_image_attention(name)}


def reduced_everywhere(kind: type, host: Host, **changes: Any) -> todome.Downsample | todome.Merge:
    """Half the tokens a side, or half of all of them, at every level."""
    if kind is todome.Downsample:
        return todome.Downsample(factor=(2,) * host.levels, **changes)
    return todome.Merge(ratio=(0.5,) * host.levels, **changes)


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


def wrapped(build: Callable[[], nn.Module]) -> Callable[[], Any]:
    """The way CompVis' and Stability's checkpoints hold their model."""
    return lambda: SimpleNamespace(model=SimpleNamespace(diffusion_model=build()))


ZOO = [
    Host("sd1", unet, unet_inputs, ((16, 18), (8, 9), (4, 5), (2, 3))),
    Host("sd1-odd", unet, lambda batch=3: unet_inputs(batch, (15, 21)), ((15, 21), (8, 11), (4, 6), (2, 3))),
    Host("sd2", lambda: small_unet(use_linear_projection=True, attention_head_dim=(2, 4)), unet_inputs),
    Host("sdxl", sdxl, sdxl_inputs),
    Host("inpainting", lambda: small_unet(in_channels=9), lambda batch=2: unet_inputs(batch, channels=9)),
    Host("lcm", lambda: small_unet(time_cond_proj_dim=8), lcm_inputs),
    Host("gligen", lambda: small_unet(attention_type="gated"), gligen_inputs),
    Host("animatediff", motion_unet, animation_inputs),
    Host("svd", video_unet, video_inputs),
    Host("unet3d", unet_3d, clip_inputs),
    Host("controlnet", controlnet, controlnet_inputs),
    Host("pixart", pixart, pixart_inputs, ((16, 18),)),
    Host("dit", dit, dit_inputs, ((16, 16),)),
    Host("ldm1", ldm_unet, ldm_inputs),
    Host("ldm1-wrapped", wrapped(ldm_unet), ldm_inputs),
    Host("ldm2", ldm_unet_v2, ldm_inputs),
    Host("ldm2-wrapped", wrapped(ldm_unet_v2), ldm_inputs),
    Host("sgm", lambda: lively(SgmUNet), sgm_inputs, extra=2),
]


def host_named(name: str) -> Host:
    return next(host for host in ZOO if host.name == name)


# ---------------------------------------------------------------------------------------------------------- a pipeline


def tiny_pipeline(kind: type = StableDiffusionPipeline, **parts: Any) -> Any:
    """A Stable Diffusion pipeline of random parts. It is given `prompt_embeds`, so it needs no text encoder."""
    blocks: Any = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    widths: Any = {"block_out_channels": (4, 4), "norm_num_groups": 2, "latent_channels": 4}
    vae = lively(lambda: AutoencoderKL(**blocks, **widths))
    nobody = dict.fromkeys(("text_encoder", "tokenizer", "safety_checker", "feature_extractor"))
    given = (
        {"vae": vae, "unet": small_unet(), "scheduler": DDIMScheduler(steps_offset=1, clip_sample=False)}
        | nobody
        | parts
    )
    pipe = kind(**given, requires_safety_checker=False)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def picture(pipe: Any, steps: int = 4, **changes: Any) -> Tensor:
    """The latents that a pipeline ends with, from the same noise every time."""
    given = {
        "prompt_embeds": text(1),
        "negative_prompt_embeds": noise(1, TEXT, WIDTH, seed=1),
        "latents": noise(1, 4, 16, 20),
        "height": 32,
        "width": 40,
        "num_inference_steps": steps,
        "output_type": "latent",
    }
    return pipe(**{**given, **changes}).images
