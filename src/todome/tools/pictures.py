"""Pictures: as PNG files that carry texts, as tensors, inside a page, and the difference of two."""

from base64 import b64encode
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageChops, PngImagePlugin
from torch import Tensor

from .files import atomic_write, check_out

BRIGHTER = 8  # times, so that differences can be seen


def write_png(
    picture: Image.Image, path: Path, texts: Mapping[str, str], *, force: bool = False, compress_level: int = 6
) -> None:
    check_out(path, force=force)
    info = PngImagePlugin.PngInfo()
    for key, text in texts.items():
        info.add_text(key, text)
    with atomic_write(path) as unfinished:
        picture.save(unfinished, "PNG", pnginfo=info, compress_level=compress_level)


def read_texts(path: Path) -> dict[str, str]:
    """The texts in a PNG file; none where it has none."""
    with Image.open(path) as picture:
        picture.load()
        return {key: str(text) for key, text in getattr(picture, "text", {}).items()}


def webp_uri(picture: Image.Image, quality: int, *, lossless: bool = False) -> str:
    """A picture inside a page."""
    buffer = BytesIO()
    picture.save(buffer, "WEBP", quality=quality, lossless=lossless)
    return data_uri("image/webp", buffer.getvalue())


def data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"


def as_tensor(picture: Image.Image) -> Tensor:
    """(1, 3, H, W) from 0 to 1."""
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None] / 255


def difference(picture: Image.Image, reference: Image.Image, times: int = BRIGHTER) -> Image.Image:
    """How far apart two pictures are, pixel by pixel, made `times` as bright."""
    brighter = [min(255, value * times) for value in range(256)]
    return ImageChops.difference(picture, reference).point(brighter * len(picture.getbands()))
