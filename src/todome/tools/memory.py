"""Memory that a picture needs, estimated from a model's configs before it is opened.

The two numbers were measured on a CPU, as the rise of the process at its peak, and rounded down: Stable Diffusion's
decoder takes 3.6 to 4.0 tensors as wide as its second stage, its UNet and that of todome-flowers 28 to 40 as wide as
their first. The estimate is thus rather too low than too high, and what it refuses cannot be drawn.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .checkpoints.header import read_header
from .checkpoints.opening import checkpoint_configs
from .pipelines import Size, find_model, format_size

DECODER, UNET = 3.5, 25.0  # tensors of full size that are in memory at once
PROGRAM = 500e6  # bytes of Python and torch themselves


class ModelFacts(NamedTuple):
    """What is known of a model before it is opened: configs of its UNet and its autoencoder, number of parameters."""

    unet: Mapping[str, Any]
    vae: Mapping[str, Any]
    parameters: int


def check_memory(model: str, size: Size | None, device: torch.device, dtype: torch.dtype) -> None:
    """Refuses a size that clearly does not fit into the memory that is free."""
    free, facts = free_bytes(device), model_facts(find_model(model))
    if free is None or facts is None:
        return
    size = size or own_size(facts)
    needed = bytes_needed(facts, size, device, dtype)
    if needed > free:
        raise MemoryError(
            f"{format_size(size)} pixels need about {gigabytes(needed)} of memory, and {gigabytes(free)} are free on "
            f"{device.type}. Lower --size, use --dtype float16, or try it all the same with --force."
        )


def gigabytes(amount: float) -> str:
    return f"{amount / 1e9:.1f} GB"


def bytes_needed(facts: ModelFacts, size: Size, device: torch.device, dtype: torch.dtype) -> float:
    """Weights, and the larger of what one step of the UNet with guidance and the decoder take."""
    pixels, number = size[0] * size[1], dtype.itemsize
    latents = pixels / pixels_on_a_side(facts) ** 2
    step = UNET * facts.unet["block_out_channels"][0] * 2 * latents * number
    wide = decoder_widths(facts.vae)[:2][-1]  # its second stage is enlarged to the full size
    decoded = DECODER * wide * pixels * (4 if facts.vae.get("force_upcast") else number)
    program = PROGRAM if device.type == "cpu" else 0.0
    return program + facts.parameters * number + max(step, decoded)


def decoder_widths(vae: Mapping[str, Any]) -> list[int]:
    return vae.get("decoder_block_out_channels") or vae["block_out_channels"]


def pixels_on_a_side(facts: ModelFacts) -> int:
    """Of one latent."""
    return 2 ** (len(decoder_widths(facts.vae)) - 1)


def own_size(facts: ModelFacts) -> Size:
    side = facts.unet["sample_size"] * pixels_on_a_side(facts)
    return side, side


def free_bytes(device: torch.device) -> int | None:
    """Memory that is free on a device, where it can tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    import psutil

    return psutil.virtual_memory().available


def model_facts(path: Path) -> ModelFacts | None:
    """None of what is no UNet with an autoencoder, or says too little of itself."""
    if path.is_file():
        configs, header, _ = checkpoint_configs(path)
        return ModelFacts(configs["unet"], configs["vae"], header.parameters)
    try:
        unet, vae = (json.loads((path / part / "config.json").read_text()) for part in ("unet", "vae"))
        facts = ModelFacts(unet, vae, sum(map(parameters_in, path.iterdir())))
        return facts if isinstance(facts.unet["sample_size"], int) and decoder_widths(vae) else None
    except (OSError, KeyError, ValueError):
        return None


def parameters_in(part: Path) -> int:
    """Of the part of a pipeline in this folder, counted once where there are files in several formats."""
    files = list(part.glob("*.safetensors"))
    whole = [file for file in files if ".fp16." not in file.name] or files
    return sum(read_header(file).parameters for file in whole)
