"""A small text-to-image model that ships with todome: photos of flowers, on any laptop, offline."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diffusers import StableDiffusionPipeline

__all__ = ["fingerprint", "load", "path", "plans"]
__version__ = "0.1.0"


def path() -> Path:
    """The folder of the pipeline: what `StableDiffusionPipeline.from_pretrained` takes."""
    return Path(__file__).parent / "pipeline"


def fingerprint(folder: Path | None = None) -> str:
    """Sixteen hex digits that say which weights these are: what was measured with them carries it.

    Of the files of the UNet and of the autoencoder. The text encoder is trained with the UNet, so it need not be read.
    """
    digest = hashlib.sha256()
    for part in ("unet", "vae"):
        digest.update(((folder or path()) / part / "diffusion_pytorch_model.safetensors").read_bytes())
    return digest.hexdigest()[:16]


def plans() -> list[Path]:
    """Files of the plans that were measured with these weights, for `todome.Plan.load`: `h200/512-45.json` and others.

    By the machine that they were timed on, the side of the picture in pixels, and the dB that they keep to dense.
    """
    return sorted((Path(__file__).parent / "plans").glob("*/*.json"))


def load(**options: Any) -> StableDiffusionPipeline:
    """The pipeline, ready to be called. `options` are those of diffusers' `from_pretrained`."""
    from diffusers import StableDiffusionPipeline

    return StableDiffusionPipeline.from_pretrained(path(), local_files_only=True, **options)
