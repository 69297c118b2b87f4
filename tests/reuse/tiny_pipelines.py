"""Tiny pipelines of the kinds that reuse over steps meets, and what they are called with."""

import inspect
from typing import Any

import torch
from diffusers import (
    AnimateDiffPipeline,
    AutoencoderKLTemporalDecoder,
    DDIMPipeline,
    EulerDiscreteScheduler,
    KandinskyV22Pipeline,
    MotionAdapter,
    StableDiffusionInpaintPipeline,
    StableDiffusionXLPipeline,
    StableVideoDiffusionPipeline,
    TextToVideoSDPipeline,
    UNet2DConditionModel,
    UNet2DModel,
    UNet3DConditionModel,
    UNetMotionModel,
    UNetSpatioTemporalConditionModel,
    VQModel,
)
from torch import Tensor
from transformers import CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModelWithProjection
from zoo import TEXT, WIDTH, ddim, lively, noise, text, tiny_pipeline, tiny_vae
from zoo.copies import built_once
from zoo.models import FRAMES, sdxl, unet
from zoo.models import SMALL as ONE_LAYER

STEPS = 10


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def words() -> dict[str, Any]:
    return {"prompt_embeds": text(1), "negative_prompt_embeds": noise(1, TEXT, WIDTH, seed=1)}


def assembled(kind: Any, **parts: Any) -> Any:
    """A pipeline of some of its parts: the others are absent."""
    known = inspect.signature(kind.__init__).parameters.items()
    absent = {name: None for name, parameter in known if name != "self" and parameter.default is parameter.empty}
    pipe = kind(**absent | parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def sdxl_pipeline() -> Any:
    return assembled(StableDiffusionXLPipeline, vae=tiny_vae(), unet=sdxl(), scheduler=ddim())


def draw_sdxl(pipe: Any, **options: Any) -> Tensor:
    pooled = {"pooled_prompt_embeds": noise(1, WIDTH), "negative_pooled_prompt_embeds": noise(1, WIDTH, seed=1)}
    return draw(pipe, **pooled, **options)


def draw(pipe: Any, **options: Any) -> Tensor:
    """Latents of 16 x 16 in ten steps."""
    sizes = {"height": 32, "width": 32}
    given = {"num_inference_steps": STEPS, "generator": seeded(), "output_type": "latent"}
    result = pipe(**words() | sizes | given | options)
    return result[0]


def inpainting() -> Any:
    return tiny_pipeline(unet=unet(in_channels=9), kind=StableDiffusionInpaintPipeline)


def picture() -> Tensor:
    return torch.linspace(0, 1, 3 * 32 * 32).view(1, 3, 32, 32)


def draw_inpainting(pipe: Any, **options: Any) -> Tensor:
    mask = (torch.arange(32 * 32).view(1, 1, 32, 32) % 3 == 0).float()
    return draw(pipe, image=picture(), mask_image=mask, strength=1.0, **options)


def three_levels(suffix: str) -> dict[str, Any]:
    down, up = (f"CrossAttn{way}Block{suffix}" for way in ("Down", "Up"))
    return {"block_out_channels": (8, 8, 16), "down_block_types": (down,) * 3, "up_block_types": (up,) * 3}


@built_once
def motion_unet() -> UNetMotionModel:
    heads: Any = {"num_attention_heads": 2, "motion_num_attention_heads": 2}
    return lively(lambda: UNetMotionModel(**ONE_LAYER, **three_levels("Motion"), **heads))


def animation() -> Any:
    adapter = MotionAdapter(block_out_channels=(8, 8, 16), motion_norm_num_groups=4, motion_num_attention_heads=2)
    parts = {"vae": tiny_vae(), "unet": motion_unet(), "scheduler": ddim()}
    return assembled(AnimateDiffPipeline, motion_adapter=adapter, **parts)


@built_once
def unet_3d() -> UNet3DConditionModel:
    return lively(lambda: UNet3DConditionModel(**ONE_LAYER, **three_levels("3D"), attention_head_dim=4))


def clip() -> Any:
    return assembled(TextToVideoSDPipeline, vae=tiny_vae(), unet=unet_3d(), scheduler=ddim())


def draw_clip(pipe: Any, **options: Any) -> Tensor:
    return draw(pipe, num_frames=FRAMES, **options)


@built_once
def video_unet() -> UNetSpatioTemporalConditionModel:
    sizes: Any = {"block_out_channels": (32, 32, 32), "layers_per_block": 1, "num_attention_heads": (2, 4, 4)}
    embeddings: Any = {"addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 3 * 8}
    ways: Any = {
        "down_block_types": ("CrossAttnDownBlockSpatioTemporal",) * 3,
        "up_block_types": ("CrossAttnUpBlockSpatioTemporal",) * 3,
    }
    own: Any = {"cross_attention_dim": WIDTH, "num_frames": FRAMES}
    return lively(lambda: UNetSpatioTemporalConditionModel(**sizes, **ways, **embeddings, **own))


def video() -> Any:
    sizes: Any = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2}
    eye = CLIPVisionConfig(**sizes, image_size=32, patch_size=16, projection_dim=WIDTH)
    widths: Any = {"down_block_types": ("DownEncoderBlock2D",) * 2, "block_out_channels": (32, 32)}
    return assembled(
        StableVideoDiffusionPipeline,
        vae=lively(lambda: AutoencoderKLTemporalDecoder(**widths)),
        image_encoder=lively(lambda: CLIPVisionModelWithProjection(eye)),
        unet=video_unet(),
        scheduler=EulerDiscreteScheduler(prediction_type="v_prediction", timestep_type="continuous"),
        feature_extractor=CLIPImageProcessor(crop_size=32, size=32),
    )


def draw_video(pipe: Any, **options: Any) -> Tensor:
    given = {"num_frames": FRAMES, "num_inference_steps": STEPS, "output_type": "latent", "generator": seeded()}
    return pipe(picture(), height=32, width=32, **given | options).frames


@built_once
def kandinsky_unet() -> UNet2DConditionModel:
    deep: Any = ("SimpleCrossAttnDownBlock2D",) * 2, ("SimpleCrossAttnUpBlock2D",) * 2
    return lively(
        lambda: UNet2DConditionModel(
            in_channels=4,
            out_channels=8,
            addition_embed_type="image",
            encoder_hid_dim=WIDTH,
            encoder_hid_dim_type="image_proj",
            cross_attention_dim=WIDTH,
            attention_head_dim=4,
            layers_per_block=1,
            norm_num_groups=4,
            block_out_channels=(8, 8, 16),
            down_block_types=("ResnetDownsampleBlock2D", *deep[0]),
            up_block_types=(*deep[1], "ResnetUpsampleBlock2D"),
            mid_block_type="UNetMidBlock2DSimpleCrossAttn",
            resnet_time_scale_shift="scale_shift",
            class_embed_type=None,
        )
    )


def kandinsky() -> Any:
    movq = VQModel(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=4,
        norm_type="group",
    )
    return assembled(KandinskyV22Pipeline, unet=kandinsky_unet(), scheduler=ddim(), movq=movq)


def draw_kandinsky(pipe: Any, **options: Any) -> Tensor:
    embeds = {"image_embeds": noise(1, WIDTH), "negative_image_embeds": noise(1, WIDTH, seed=1)}
    given = {"num_inference_steps": STEPS, "output_type": "latent", "generator": seeded()}
    return pipe(**embeds, height=32, width=32, **given | options).images


@built_once
def unconditional_unet() -> UNet2DModel:
    return lively(
        lambda: UNet2DModel(
            sample_size=16,
            block_out_channels=(8, 8, 16),
            layers_per_block=1,
            norm_num_groups=4,
            attention_head_dim=4,
            down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        )
    )


def unconditional() -> Any:
    return assembled(DDIMPipeline, unet=unconditional_unet(), scheduler=ddim())


def draw_unconditional(pipe: Any, **options: Any) -> Tensor:
    given = {"num_inference_steps": STEPS, "generator": seeded(), "output_type": "np"}
    drawn = pipe(2, **given | options).images
    return torch.from_numpy(drawn)
