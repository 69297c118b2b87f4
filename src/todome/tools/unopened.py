"""What is known of a model before it is opened: whether a reduction fits it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..hosts import Layer, find_layers
from ..levers.lever import TokenLever, one_of_each
from ..levers.plan import LeverOrPlan
from .checkpoints.opening import checkpoint_configs
from .pipelines import Size, find_model
from .quiet import quiet_loading


def check_reduction(model: str, size: Size | None, reduction: LeverOrPlan | None) -> None:
    """Refuses a reduction that a model cannot have on pictures of this size; without one, of the model's own.

    What its configs do not tell is found out when it is open.
    """
    configs = read_configs(find_model(model)) if reduction else None
    if reduction is None or configs is None:
        return
    unet, vae = configs
    pixels = 2 ** (len(decoder_widths(vae)) - 1)  # on a side of one latent
    width, height = [side // pixels for side in size] if size else [unet["sample_size"]] * 2
    layers = layers_of(unet)
    for lever in one_of_each((reduction,)) if layers else ():
        if isinstance(lever, TokenLever):
            check_grids(lever, layers, height, width)


def check_grids(lever: TokenLever, layers: Sequence[Layer], height: int, width: int) -> None:
    """Refuses a lever with a setting that a layer cannot have on latents of this size."""
    for layer, pieces in zip(layers, lever.pieces(layers), strict=True):
        height_there, width_there = (-(-side // 2**layer.scale) for side in (height, width))
        for _, setting in pieces:
            if setting is not None:
                lever.kept_count((height_there, width_there), setting)


def read_configs(path: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The configs of a UNet and its autoencoder; None of what is no such model, or says too little of itself."""
    if path.is_file():
        configs = checkpoint_configs(path)[0]
        return configs["unet"], configs["vae"]
    try:
        unet, vae = (json.loads((path / part / "config.json").read_text()) for part in ("unet", "vae"))
    except (OSError, ValueError):
        return None
    return (unet, vae) if isinstance(unet.get("sample_size"), int) and decoder_widths(vae) else None


def decoder_widths(vae: dict[str, Any]) -> list[int]:
    """Channels of a decoder's stages, each of which doubles the sides."""
    return vae.get("decoder_block_out_channels") or vae.get("block_out_channels", [])


def layers_of(config: dict[str, Any]) -> list[Layer]:
    """The layers of a UNet, made without its weights; none where the config makes none: opening it says why."""
    with quiet_loading() as diffusers, torch.device("meta"):
        try:
            return find_layers(getattr(diffusers, config["_class_name"]).from_config(config))
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
            return []
