"""Tiny transformers in their pipelines, and what these are called with: words and pictures are tensors already."""

from typing import Any

import torch
from diffusers import (
    DDIMScheduler,
    DiTPipeline,
    DiTTransformer2DModel,
    FlowMatchEulerDiscreteScheduler,
    FluxTransformer2DModel,
    PixArtAlphaPipeline,
    PixArtTransformer2DModel,
    PriorTransformer,
    SD3ControlNetModel,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from tiny_pipelines import assembled
from torch import Tensor
from transformers import CLIPTextConfig, CLIPTextModel
from versions import part_of_diffusers
from zoo import TEXT, WIDTH, lively, noise, text, tiny_vae

STEPS = 10


def flow(**options: Any) -> FlowMatchEulerDiscreteScheduler:
    return FlowMatchEulerDiscreteScheduler(**options)


def words(pooled: bool = False, masks: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {"prompt_embeds": text(1), "negative_prompt_embeds": noise(1, TEXT, WIDTH, seed=1)}
    if pooled:
        found |= {"pooled_prompt_embeds": noise(1, WIDTH), "negative_pooled_prompt_embeds": noise(1, WIDTH, seed=1)}
    if masks:
        mask = torch.ones(1, TEXT, dtype=torch.long)
        found |= {"prompt_attention_mask": mask, "negative_prompt_attention_mask": mask * (torch.arange(TEXT) < 5)}
    return found


def run(pipe: Any, **options: Any) -> Tensor:
    given = {"num_inference_steps": STEPS, "generator": torch.Generator().manual_seed(0), "output_type": "latent"}
    return pipe(**given | options)[0]


def sd3() -> Any:
    model = lively(
        lambda: SD3Transformer2DModel(
            sample_size=8,
            patch_size=1,
            in_channels=4,
            num_layers=1,
            attention_head_dim=8,
            num_attention_heads=2,
            caption_projection_dim=16,
            joint_attention_dim=WIDTH,
            pooled_projection_dim=WIDTH,
            out_channels=4,
        )
    )
    return assembled(StableDiffusion3Pipeline, transformer=model, scheduler=flow())


def draw_sd3(pipe: Any, **options: Any) -> Tensor:
    return run(pipe, **options, **words(pooled=True), height=64, width=64)


def flux() -> Any:
    model = lively(
        lambda: FluxTransformer2DModel(
            patch_size=1,
            in_channels=16,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=WIDTH,
            pooled_projection_dim=WIDTH,
            axes_dims_rope=(4, 4, 8),
        )
    )
    pipeline = part_of_diffusers("FluxPipeline", oldest=(0, 33))  # before it, guidance was distilled alone
    return assembled(pipeline, transformer=model, scheduler=flow())


def draw_flux(pipe: Any, **options: Any) -> Tensor:
    return run(pipe, **options, **words(pooled=True), true_cfg_scale=3.0, height=64, width=64)


def pixart() -> Any:
    model = lively(
        lambda: PixArtTransformer2DModel(
            sample_size=8,
            num_layers=1,
            patch_size=2,
            attention_head_dim=8,
            num_attention_heads=2,
            caption_channels=WIDTH,
            in_channels=4,
            cross_attention_dim=16,
            out_channels=8,
        )
    )
    return assembled(PixArtAlphaPipeline, transformer=model, vae=tiny_vae(), scheduler=DDIMScheduler(clip_sample=False))


def draw_pixart(pipe: Any, **options: Any) -> Tensor:
    return run(
        pipe, **options, negative_prompt=None, **words(masks=True), height=64, width=64, use_resolution_binning=False
    )


def dit() -> Any:
    model = lively(
        lambda: DiTTransformer2DModel(
            sample_size=8,
            num_layers=1,
            patch_size=2,
            attention_head_dim=8,
            num_attention_heads=2,
            in_channels=4,
            out_channels=8,
            num_embeds_ada_norm=1000,
        )
    )
    return assembled(DiTPipeline, transformer=model, vae=tiny_vae(), scheduler=DDIMScheduler(clip_sample=False))


def draw_dit(pipe: Any, **options: Any) -> Tensor:
    return torch.from_numpy(run(pipe, **options, class_labels=[3], output_type="np"))


def sana() -> Any:
    model = lively(
        lambda: part_of_diffusers("SanaTransformer2DModel")(
            patch_size=1,
            in_channels=4,
            out_channels=4,
            num_layers=1,
            num_attention_heads=2,
            attention_head_dim=4,
            num_cross_attention_heads=2,
            cross_attention_head_dim=4,
            cross_attention_dim=8,
            caption_channels=WIDTH,
            sample_size=8,
        )
    )
    return assembled(part_of_diffusers("SanaPipeline"), transformer=model, scheduler=flow())


def draw_sana(pipe: Any, **options: Any) -> Tensor:
    return run(
        pipe, **options, negative_prompt=None, **words(masks=True), height=256, width=256, use_resolution_binning=False
    )


def ltx() -> Any:
    model = lively(
        lambda: part_of_diffusers("LTXVideoTransformer3DModel")(
            in_channels=4,
            out_channels=4,
            num_attention_heads=2,
            attention_head_dim=8,
            cross_attention_dim=16,
            num_layers=1,
            caption_channels=WIDTH,
        )
    )
    return assembled(part_of_diffusers("LTXPipeline"), transformer=model, scheduler=flow(use_dynamic_shifting=True))


def draw_ltx(pipe: Any, **options: Any) -> Tensor:
    return run(pipe, **options, **words(masks=True), height=128, width=128, num_frames=9)


def qwen() -> Any:
    model = lively(
        lambda: part_of_diffusers("QwenImageTransformer2DModel")(
            patch_size=2,
            in_channels=16,
            out_channels=4,
            num_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=WIDTH,
            axes_dims_rope=(4, 4, 8),
        )
    )
    return assembled(part_of_diffusers("QwenImagePipeline"), transformer=model, scheduler=flow())


def draw_qwen(pipe: Any, **options: Any) -> Tensor:
    mask = torch.ones(1, TEXT, dtype=torch.long)
    masks = {"prompt_embeds_mask": mask, "negative_prompt_embeds_mask": mask}
    return run(pipe, **options, **words(), **masks, true_cfg_scale=3.0, height=64, width=64)


def wan() -> Any:
    model = lively(
        lambda: part_of_diffusers("WanTransformer3DModel")(
            patch_size=(1, 2, 2),
            num_attention_heads=2,
            attention_head_dim=12,
            in_channels=4,
            out_channels=4,
            text_dim=WIDTH,
            freq_dim=16,
            ffn_dim=32,
            num_layers=1,
            rope_max_seq_len=32,
        )
    )
    return assembled(part_of_diffusers("WanPipeline"), transformer=model, scheduler=flow())


def draw_wan(pipe: Any, **options: Any) -> Tensor:
    return run(pipe, **options, **words(), height=64, width=64, num_frames=5)


def lumina2() -> Any:
    sizes: Any = {"hidden_size": 24, "num_layers": 1, "num_refiner_layers": 1, "num_attention_heads": 3}
    axes: Any = {"axes_dim_rope": (4, 2, 2), "axes_lens": (128, 128, 128), "multiple_of": 2, "num_kv_heads": 1}
    build = part_of_diffusers("Lumina2Transformer2DModel")
    model = lively(lambda: build(sample_size=8, in_channels=4, cap_feat_dim=WIDTH, **sizes, **axes))
    return assembled(part_of_diffusers("Lumina2Pipeline"), transformer=model, scheduler=flow())


def draw_lumina2(pipe: Any, **options: Any) -> Tensor:
    masks = {name: torch.ones(1, TEXT, dtype=torch.bool) for name in words(masks=True) if "mask" in name}
    return run(pipe, **options, **words(), **masks, height=64, width=64)


def text_encoder() -> Any:
    sizes: Any = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2}
    return CLIPTextModel(CLIPTextConfig(vocab_size=8, **sizes))


def prior() -> Any:
    sizes: Any = {"num_attention_heads": 2, "attention_head_dim": 4, "num_layers": 1}
    return PriorTransformer(embedding_dim=8, num_embeddings=3, additional_embeddings=4, **sizes)


def listed() -> Any:
    """Z-Image takes lists of latents."""
    sizes: Any = {"dim": 32, "n_layers": 1, "n_refiner_layers": 1, "n_heads": 2, "n_kv_heads": 2, "in_channels": 4}
    axes: Any = {"axes_dims": [8, 4, 4], "axes_lens": [256, 32, 32]}
    return part_of_diffusers("ZImageTransformer2DModel")(cap_feat_dim=WIDTH, **sizes, **axes)


def control() -> Any:
    return SD3ControlNetModel.from_transformer(sd3().transformer, num_layers=1, load_weights_from_transformer=False)
