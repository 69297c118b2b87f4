"""Configs of a checkpoint's parts, from the shapes in its header, as `from_pretrained` would find them in a folder.

What shapes do not say (schedules, activations, the width of a head) is what Stable Diffusion 1.x, 2.x and XL have.
"""

import json
from pathlib import Path
from typing import Any, TypeAlias

from .header import Header
from .kinds import SD1, SD2, SDXL, UNET, Kind
from .tokenizer import write_tokenizer

Config: TypeAlias = dict[str, Any]
HEAD = 64  # channels of a head, in all text encoders, and in the UNets of 2.x and XL
NOISE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}
SIDES = {SD1: 512, SD2: 512, SDXL: 1024}  # pixels of the pictures it was trained on; 768 for the v-prediction of 2.x
PADDING = {SD1: "<|endoftext|>", SD2: "!", SDXL: "<|endoftext|>"}


def pipeline_configs(header: Header, kind: Kind) -> dict[str, Config]:
    """Configs by the name of the part; that of the pipeline itself is under the empty name."""
    scaling = 0.13025 if kind is SDXL else 0.18215
    parts: dict[str, Config] = {
        "unet": unet_config(header.under(UNET), kind),
        "vae": vae_config(header.under("first_stage_model."), scaling_factor=scaling, force_upcast=kind is SDXL),
        "scheduler": scheduler_config(header, kind),
        **text_configs(header, kind),
    }
    tokenizers = [name.replace("text_encoder", "tokenizer") for name in parts if name.startswith("text_encoder")]
    library = {"unet": "diffusers", "vae": "diffusers", "scheduler": "diffusers"}
    index = {name: [library.get(name, "transformers"), parts[name]["_class_name"]] for name in parts}
    index |= {name: ["transformers", "CLIPTokenizer"] for name in tokenizers}
    return {"": {**pipeline_config(kind), **index}, **parts}


def pipeline_config(kind: Kind) -> Config:
    none = [None, None]
    if kind is SDXL:
        own = {"_class_name": "StableDiffusionXLPipeline", "force_zeros_for_empty_prompt": True}
    else:
        own = {"_class_name": "StableDiffusionPipeline", "requires_safety_checker": False, "safety_checker": none}
    return {**own, "feature_extractor": none, "image_encoder": none}


def unet_config(unet: Header, kind: Kind) -> Config:
    stages = unet_stages(unet)
    widths = [unet.shapes[f"input_blocks.{stage[0]}.0.out_layers.3.weight"][0] for stage in stages]
    depths = [unet.count(f"input_blocks.{stage[0]}.1.transformer_blocks.{{}}.") for stage in stages]
    first = f"input_blocks.{next(stage[0] for stage, depth in zip(stages, depths, strict=True) if depth)}.1."
    blocks = ["CrossAttn" * bool(depth) for depth in depths]
    config: Config = {
        "_class_name": "UNet2DConditionModel",
        "sample_size": SIDES[kind] // 8,
        "in_channels": unet.shapes["input_blocks.0.0.weight"][1],
        "out_channels": unet.shapes["out.2.weight"][0],
        "block_out_channels": widths,
        "layers_per_block": len(stages[0]),
        "down_block_types": [f"{block}DownBlock2D" for block in blocks],
        "up_block_types": [f"{block}UpBlock2D" for block in reversed(blocks)],
        "transformer_layers_per_block": [max(1, depth) for depth in depths],
        "cross_attention_dim": unet.shapes[f"{first}transformer_blocks.0.attn2.to_k.weight"][1],
        "use_linear_projection": len(unet.shapes[f"{first}proj_in.weight"]) == 2,
        "attention_head_dim": 8 if kind is SD1 else [width // HEAD for width in widths],  # their number, by a mistake
    }
    if kind is SDXL:
        added = unet.shapes["label_emb.0.0.weight"][1]
        config |= {"addition_embed_type": "text_time", "addition_time_embed_dim": 256}
        config |= {"projection_class_embeddings_input_dim": added}
    return config


def unet_stages(unet: Header) -> list[list[int]]:
    """The numbers of the input blocks that are at one resolution: a convolution to halve it ends a stage."""
    stages: list[list[int]] = [[]]
    for i in range(1, unet.count("input_blocks.{}.")):
        if f"input_blocks.{i}.0.op.weight" in unet.shapes:
            stages.append([])
        else:
            stages[-1].append(i)
    return stages


def vae_config(vae: Header, **given: Any) -> Config:
    """Config of an autoencoder whose tensors have the names of CompVis."""
    stages = vae.count("encoder.down.{}.")
    return {
        "_class_name": "AutoencoderKL",
        "block_out_channels": [vae.shapes[f"encoder.down.{i}.block.0.conv1.weight"][0] for i in range(stages)],
        "down_block_types": ["DownEncoderBlock2D"] * stages,
        "up_block_types": ["UpDecoderBlock2D"] * stages,
        "layers_per_block": vae.count("encoder.down.0.block.{}."),
        "latent_channels": vae.shapes["decoder.conv_in.weight"][1],
        "sample_size": 512,
        **given,
    }


def text_configs(header: Header, kind: Kind) -> dict[str, Config]:
    if kind is SD1:
        return {"text_encoder": clip_config(header.under("cond_stage_model.transformer.text_model."))}
    if kind is SD2:
        config = open_clip_config(header.under("cond_stage_model.model."))
        return {"text_encoder": {**config, "num_hidden_layers": config["num_hidden_layers"] - 1}}  # it skips the last
    second = {
        **open_clip_config(header.under("conditioner.embedders.1.model.")),
        "_class_name": "CLIPTextModelWithProjection",
    }
    return {
        "text_encoder": clip_config(header.under("conditioner.embedders.0.transformer.text_model.")),
        "text_encoder_2": second,
    }


def clip_config(text: Header) -> Config:
    """Config of OpenAI's CLIP, as transformers names its tensors."""
    words, width = text.shapes["embeddings.token_embedding.weight"]
    places = text.shapes["embeddings.position_embedding.weight"][0]
    inner = text.shapes["encoder.layers.0.mlp.fc1.weight"][0]
    return text_config(words, width, places, inner, text.count("encoder.layers.{}."), "quick_gelu")


def open_clip_config(text: Header) -> Config:
    words, width = text.shapes["token_embedding.weight"]
    places = text.shapes["positional_embedding"][0]
    inner = text.shapes["transformer.resblocks.0.mlp.c_fc.weight"][0]
    return text_config(words, width, places, inner, text.count("transformer.resblocks.{}."), "gelu")


def text_config(words: int, width: int, places: int, inner: int, layers: int, activation: str) -> Config:
    return {
        "_class_name": "CLIPTextModel",
        "model_type": "clip_text_model",
        "vocab_size": words,
        "hidden_size": width,
        "projection_dim": width,
        "max_position_embeddings": places,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": width // HEAD,
        "hidden_act": activation,
        "bos_token_id": words - 2,
        "eos_token_id": words - 1,
        "pad_token_id": 1,
    }


def scheduler_config(header: Header, kind: Kind) -> Config:
    """The scheduler that its makers published it with; what it predicts is asked later where the file does not say."""
    predicts = {"prediction_type": prediction_type(header) or "epsilon"}
    if kind is SDXL:
        zero = {"rescale_betas_zero_snr": True} if "ztsnr" in header.shapes else {}
        return {"_class_name": "EulerDiscreteScheduler", "timestep_spacing": "leading", **NOISE, **zero, **predicts}
    return {"_class_name": "PNDMScheduler", "skip_prk_steps": True, "set_alpha_to_one": False, **NOISE, **predicts}


def prediction_type(header: Header) -> str | None:
    """What the UNet predicts, where the file says so."""
    said = header.texts.get("modelspec.prediction_type", "")
    if "v_pred" in header.shapes or said.startswith("v"):
        return "v_prediction"
    return "epsilon" if said.startswith("eps") else None


def write_configs(folder: Path, configs: dict[str, Config], kind: Kind) -> None:
    """A folder as `from_pretrained` knows it, without weights."""
    names = {"": "model_index.json", "scheduler": "scheduler_config.json"}
    for part, config in configs.items():
        (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / part / names.get(part, "config.json")).write_text(json.dumps(config), encoding="utf-8")
    write_tokenizer(folder / "tokenizer", PADDING[kind])
    if kind is SDXL:
        write_tokenizer(folder / "tokenizer_2", "!")
