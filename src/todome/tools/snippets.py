"""Lines of Python that open the model of some settings with diffusers alone, for people to copy."""

import json
from pathlib import Path
from typing import Any

from .checkpoints.configs import known_configs
from .checkpoints.opening import check_checkpoint, split_weight
from .pipelines import EMBEDDED
from .settings import Settings


def quote_text(text: str) -> str:
    """Text as a literal of Python."""
    return json.dumps(text, ensure_ascii=False)


def opening_lines(settings: Settings, device: Any, dtype: Any) -> list[str]:
    """A folder or a hub id by `from_pretrained`, a file by `from_single_file`; then its VAE and its LoRAs."""
    model, path = settings.model, Path(settings.model).expanduser()
    source = "todome_flowers.path()" if model == EMBEDDED else quote_text(model)
    opener = "DiffusionPipeline.from_pretrained"
    if path.is_file():
        opener = f"{known_configs(check_checkpoint(path)[1])['']['_class_name']}.from_single_file"
    lines = [f"pipe = diffusers.{opener}({source}, dtype={dtype}).to({quote_text(str(device))})"]
    if settings.vae:
        opener = "from_pretrained" if Path(settings.vae).expanduser().is_dir() else "from_single_file"
        scale = ", scaling_factor=pipe.vae.config.scaling_factor" if opener == "from_single_file" else ""
        given = f"{quote_text(settings.vae)}, dtype={dtype}{scale}"
        lines += [f"pipe.vae = diffusers.AutoencoderKL.{opener}({given}).to(pipe.device)"]
    for lora in settings.loras:
        file, weight = split_weight(lora)
        lines += [f"pipe.load_lora_weights({quote_text(str(file))})", f"pipe.fuse_lora(lora_scale={weight:g})"]
        lines += ["pipe.unload_lora_weights()"]
    return lines
