"""Previews of a run: the latents are shrunk, so that the model's own decoder is cheap."""

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..generate import Step
from ..pictures import webp_uri

if TYPE_CHECKING:
    from PIL.Image import Image

LATENTS = 32  # on the longer side of a preview
REST = 0.4  # seconds between previews at the least
QUALITY = 70


class Previews:
    """Maker of previews, with a rest between two of them."""

    def __init__(self, pipe: Any) -> None:
        self.pipe, self.next = pipe, 0.0

    def of(self, step: Step) -> str:
        """Preview of a step as a data URI; empty where it is too early for another one, or none can be made."""
        if time.monotonic() < self.next or step.latents.ndim != 4:
            return ""
        preview = decode(self.pipe, shrink(step.latents[:1]))
        self.next = time.monotonic() + REST
        return webp_uri(preview, QUALITY)


def shrink(latents: Tensor) -> Tensor:
    """Latents (1, C, h, w) with the longer side at most 32, by averages, which have less of the noise too."""
    height, width = latents.shape[-2:]
    scale = max(1.0, max(height, width) / LATENTS)
    return F.interpolate(latents.float(), (round(height / scale), round(width / scale)), mode="area").to(latents.dtype)


@torch.no_grad()
def decode(pipe: Any, latents: Tensor) -> "Image":
    """Decodes as the pipeline does: some decoders overflow in float16, and bfloat16 reaches as far as float32."""
    config = pipe.vae.config
    latents = latents / config.get("scaling_factor", 1.0) + (config.get("shift_factor") or 0.0)
    overflows = pipe.vae.dtype == torch.float16 and config.get("force_upcast")
    with torch.autocast(latents.device.type, torch.bfloat16) if overflows else nullcontext():
        picture = pipe.vae.decode(latents.to(pipe.vae.dtype), return_dict=False)[0]
    return pipe.image_processor.postprocess(picture.float(), output_type="pil")[0]
