"""A small text-to-image model that ships with todome: photos of flowers, on any laptop, offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diffusers import StableDiffusionPipeline

__all__ = ["load", "path"]
__version__ = "0.1.0"


def path() -> Path:
    """The folder of the pipeline: what `StableDiffusionPipeline.from_pretrained` takes."""
    return Path(__file__).parent / "pipeline"


def load(**options: Any) -> StableDiffusionPipeline:
    """The pipeline, ready to be called. `options` are those of diffusers' `from_pretrained`."""
    from diffusers import StableDiffusionPipeline

    return StableDiffusionPipeline.from_pretrained(path(), local_files_only=True, **options)
