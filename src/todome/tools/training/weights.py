"""The layers of a LoRA in a UNet, and the file they become."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..files import atomic_write

PROJECTIONS = ("to_q", "to_k", "to_v", "to_out.0")  # of every attention, as in LoRA (arXiv 2106.09685)


def add_lora(unet: Any, rank: int, alpha: float, seed: int) -> None:
    """Gives a UNet the layers that learn, in float32, and freezes the rest. The global generators are not touched."""
    from diffusers.training_utils import cast_training_params
    from peft import LoraConfig

    unet.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        unet.add_adapter(LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(PROJECTIONS)))  # pyright: ignore
    cast_training_params(unet, torch.float32)


def trainable_parameters(unet: Any) -> dict[str, Tensor]:
    """The parameters that learn, by name."""
    return {name: parameter for name, parameter in unet.named_parameters() if parameter.requires_grad}


def lora_weights(unet: Any) -> dict[str, Tensor]:
    """The LoRA as `pipe.load_lora_weights` reads it.

    The scale alpha / rank is part of the weights: loaders that know of no alpha draw the same as those that do.
    """
    from peft.utils import get_peft_model_state_dict

    config = unet.peft_config["default"]
    scales = {"lora_A": 1.0, "lora_B": config.lora_alpha / config.r}
    weights = {}
    for name, weight in get_peft_model_state_dict(unet).items():
        part = name.split(".")[-2]
        weights[f"unet.{name}"] = (weight.detach() * scales[part]).cpu().contiguous()
    return weights


def write_lora(unet: Any, path: Path, metadata: Mapping[str, str]) -> None:
    """Writes the LoRA. Not by safetensors itself, whose files can be read by their owner alone."""
    from safetensors.torch import save

    with atomic_write(path) as unfinished:
        unfinished.write_bytes(save(lora_weights(unet), dict(metadata)))
