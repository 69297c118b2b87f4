"""Configs of a checkpoint's parts, as `from_pretrained` would find them in a folder: configs.json, and what shapes say.

What shapes do not say (schedules, activations) is what Stable Diffusion 1.x, 2.x and XL have.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from .header import Header
from .kinds import SD1, SD2, SDXL, UNET, Kind
from .tokenizer import write_tokenizer

Config: TypeAlias = dict[str, Any]
HEAD = 64  # channels of a head, in all text encoders, and in the UNets of 2.x and XL
PADDING = {SD1: "<|endoftext|>", SD2: "!", SDXL: "<|endoftext|>"}


class TextNames(NamedTuple):
    """How a library names the tensors of a text encoder."""

    words: str
    places: str
    layer: str
    inner: str


CLIP = TextNames(
    "embeddings.token_embedding.weight", "embeddings.position_embedding.weight", "encoder.layers.{}.", "mlp.fc1.weight"
)
OPEN_CLIP = TextNames("token_embedding.weight", "positional_embedding", "transformer.resblocks.{}.", "mlp.c_fc.weight")
ENCODERS = {  # where each text encoder is in a checkpoint
    SD1: {"text_encoder": ("cond_stage_model.transformer.text_model.", CLIP)},
    SD2: {"text_encoder": ("cond_stage_model.model.", OPEN_CLIP)},
    SDXL: {
        "text_encoder": ("conditioner.embedders.0.transformer.text_model.", CLIP),
        "text_encoder_2": ("conditioner.embedders.1.model.", OPEN_CLIP),
    },
}


def known_configs(kind: Kind) -> dict[str, Config]:
    """What all checkpoints of a kind have, by the name of the part; the pipeline itself is under the empty name."""
    return json.loads(Path(__file__).with_name("configs.json").read_text(encoding="utf-8"))[kind.name]


def pipeline_configs(header: Header, kind: Kind) -> dict[str, Config]:
    """Configs by the name of the part, with what the shapes in a checkpoint say."""
    parts = known_configs(kind)
    parts["unet"] |= unet_config(header.under(UNET), kind)
    parts["vae"] |= vae_config(header.under("first_stage_model."))
    for name, (prefix, names) in ENCODERS[kind].items():
        parts[name] |= text_config(header.under(prefix), names)
    if kind is SD2:
        parts["text_encoder"]["num_hidden_layers"] -= 1  # it skips the last
    parts["scheduler"]["prediction_type"] = prediction_type(header) or "epsilon"  # asked later if the file is silent
    if kind is SDXL and "ztsnr" in header.shapes:
        parts["scheduler"]["rescale_betas_zero_snr"] = True
    return parts


def unet_config(unet: Header, kind: Kind) -> Config:
    stages = unet_stages(unet)
    widths = [unet.shapes[f"input_blocks.{stage[0]}.0.out_layers.3.weight"][0] for stage in stages]
    depths = [unet.count(f"input_blocks.{stage[0]}.1.transformer_blocks.{{}}.") for stage in stages]
    first = f"input_blocks.{next(stage[0] for stage, depth in zip(stages, depths, strict=True) if depth)}.1."
    blocks = ["CrossAttn" * bool(depth) for depth in depths]
    config: Config = {
        **known_configs(kind)["unet"],
        "in_channels": unet.shapes["input_blocks.0.0.weight"][1],
        "out_channels": unet.shapes["out.2.weight"][0],
        "block_out_channels": widths,
        "layers_per_block": len(stages[0]),
        "down_block_types": [f"{block}DownBlock2D" for block in blocks],
        "up_block_types": [f"{block}UpBlock2D" for block in reversed(blocks)],
        "transformer_layers_per_block": [max(1, depth) for depth in depths],
        "cross_attention_dim": unet.shapes[f"{first}transformer_blocks.0.attn2.to_k.weight"][1],
        "use_linear_projection": len(unet.shapes[f"{first}proj_in.weight"]) == 2,
    }
    if kind is not SD1:
        config["attention_head_dim"] = [width // HEAD for width in widths]  # their number, by a mistake
    if kind is SDXL:
        config["projection_class_embeddings_input_dim"] = unet.shapes["label_emb.0.0.weight"][1]
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


def vae_config(vae: Header) -> Config:
    """Of an autoencoder whose tensors have the names of CompVis."""
    stages = vae.count("encoder.down.{}.")
    return {
        "block_out_channels": [vae.shapes[f"encoder.down.{i}.block.0.conv1.weight"][0] for i in range(stages)],
        "down_block_types": ["DownEncoderBlock2D"] * stages,
        "up_block_types": ["UpDecoderBlock2D"] * stages,
        "layers_per_block": vae.count("encoder.down.0.block.{}."),
        "latent_channels": vae.shapes["decoder.conv_in.weight"][1],
    }


def text_config(text: Header, names: TextNames) -> Config:
    words, width = text.shapes[names.words]
    return {
        "vocab_size": words,
        "hidden_size": width,
        "projection_dim": width,
        "max_position_embeddings": text.shapes[names.places][0],
        "intermediate_size": text.shapes[names.layer.format(0) + names.inner][0],
        "num_hidden_layers": text.count(names.layer),
        "num_attention_heads": width // HEAD,
        "bos_token_id": words - 2,
        "eos_token_id": words - 1,
    }


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
