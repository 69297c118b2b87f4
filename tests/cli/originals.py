"""Checkpoints as CompVis and Stability laid them out: their own classes, narrow and random, under their own names."""

from pathlib import Path
from typing import Any

import torch
from ldm.modules.diffusionmodules.model import Decoder, Encoder
from ldm.modules.diffusionmodules.openaimodel import UNetModel
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModel
from zoo import lively

WORDS = 49408  # of CLIP
FIRST, SECOND = 64, 128  # widths of the text encoders


class OpenClip(nn.Module):
    """The text encoder of open_clip: real parts of torch under its names."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(WORDS, width)
        self.positional_embedding = nn.Parameter(torch.randn(77, width) / 100)
        self.transformer = nn.Module()
        self.transformer.resblocks = nn.ModuleList([ResidualBlock(width) for _ in range(layers)])
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(torch.randn(width, width) / 10)
        self.logit_scale = nn.Parameter(torch.ones([]))

    def layer(self, tokens: Tensor, layers: int) -> Tensor:
        """What so many layers make of the tokens."""
        found = self.token_embedding(tokens) + self.positional_embedding
        blocks: Any = self.transformer.resblocks
        for block in blocks[:layers]:
            found = block(found)
        return found


class ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attn, self.ln_1, self.ln_2 = nn.MultiheadAttention(width, width // 64, batch_first=True), *norms(width)
        self.mlp = nn.Sequential()
        for name, part in {"c_fc": nn.Linear(width, 128), "gelu": nn.GELU(), "c_proj": nn.Linear(128, width)}.items():
            self.mlp.add_module(name, part)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.full((77, 77), -torch.inf).triu(1)
        inner = self.ln_1(x)
        x = x + self.attn(inner, inner, inner, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


def norms(width: int) -> tuple[nn.LayerNorm, nn.LayerNorm]:
    return nn.LayerNorm(width), nn.LayerNorm(width)


def unet(context: Any, **changes: Any) -> UNetModel:
    config = {"image_size": 32, "in_channels": 4, "out_channels": 4, "model_channels": 32, "num_res_blocks": 2}
    config |= {"attention_resolutions": [4, 2, 1], "channel_mult": [1, 2, 2, 2], "num_heads": 8}
    config |= {"use_spatial_transformer": True, "context_dim": context, "legacy": False, "use_checkpoint": False}
    return lively(lambda: UNetModel(**{**config, **changes}))


def unet_xl() -> UNetModel:
    """No attention at the finest resolution, two blocks in each of the others, and a vector beside the time."""
    heads = {"num_heads": -1, "num_head_channels": 64, "use_linear_in_transformer": True, "transformer_depth": 2}
    levels = {"model_channels": 64, "channel_mult": [1, 2, 4], "attention_resolutions": [4, 2]}
    model = unet([FIRST + SECOND] * 2, num_classes="continuous", **heads, **levels)
    time, added = 4 * 64, SECOND + 6 * 256
    parts = lambda: nn.Sequential(nn.Linear(added, time), nn.SiLU(), nn.Linear(time, time))  # noqa: E731
    model.label_emb = lively(lambda: nn.Sequential(parts()))
    return model


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes: Any = {"ch": 32, "out_ch": 3, "ch_mult": (1, 1, 2, 2), "num_res_blocks": 2, "attn_resolutions": []}
        sizes |= {"in_channels": 3, "resolution": 64, "z_channels": 4}
        self.encoder, self.decoder = Encoder(**sizes), Decoder(**sizes)
        self.quant_conv, self.post_quant_conv = nn.Conv2d(8, 8, 1), nn.Conv2d(4, 4, 1)

    def decode(self, latents: Tensor) -> Tensor:
        return self.decoder(self.post_quant_conv(latents))


def clip(layers: int = 12) -> CLIPTextModel:
    sizes: Any = {"hidden_size": FIRST, "intermediate_size": 128, "num_hidden_layers": layers, "num_attention_heads": 1}
    return lively(lambda: CLIPTextModel(CLIPTextConfig(vocab_size=WORDS, eos_token_id=WORDS - 1, **sizes)))


class Original(nn.Module):
    """A whole checkpoint: the module whose state dict is the file."""

    def __init__(self, denoiser: nn.Module) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.diffusion_model = denoiser
        self.first_stage_model = lively(Autoencoder)

    def write(self, path: Path, texts: dict[str, str] | None = None, **more: Tensor) -> Path:
        """The file; transformers has dropped a part of the names that the files have."""
        renamed = {with_text_model(name): tensor.contiguous() for name, tensor in self.state_dict().items()}
        save_file({**renamed, **more}, path, texts)
        return path


def with_text_model(name: str) -> str:
    for part in (".transformer.embeddings.", ".transformer.encoder.", ".transformer.final_layer_norm."):
        if "diffusion_model" not in name:
            name = name.replace(part, part.replace(".transformer.", ".transformer.text_model."))
    return name


def sd1(**changes: Any) -> Original:
    model = Original(unet(FIRST, **changes))
    model.cond_stage_model = nn.Module()
    model.cond_stage_model.transformer = clip()
    return model


def sd2() -> Original:
    heads = {"num_heads": -1, "num_head_channels": 64, "use_linear_in_transformer": True, "model_channels": 64}
    model = Original(unet(FIRST, **heads))
    model.cond_stage_model = nn.Module()
    model.cond_stage_model.model = lively(lambda: OpenClip(FIRST, 24))
    return model


def sdxl() -> Original:
    model = Original(unet_xl())
    first, second = nn.Module(), nn.Module()
    first.transformer, second.model = clip(), lively(lambda: OpenClip(SECOND, 32))
    model.conditioner = nn.Module()
    model.conditioner.embedders = nn.ModuleList([first, second])
    return model
