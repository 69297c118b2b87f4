"""Photos as tensors: read from a folder per kind, and cut out at many scales and places."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm
from words import KINDS

SIDE = 264  # a little over 256, so that crops can move
SUFFIXES = {".jpeg", ".jpg", ".png", ".webp"}


def list_photos(folder: Path) -> list[tuple[Path, str]]:
    """Every photo with its kind, told by the name of its folder in singular or plural."""
    kinds = {form: kind for kind, forms in KINDS.items() for form in forms}
    files = sorted(path for path in folder.glob("*/*") if path.suffix.lower() in SUFFIXES)
    found = [(path, kinds[path.parent.name.lower()]) for path in files if path.parent.name.lower() in kinds]
    if not found:
        raise SystemExit(f"{folder} holds no photos. Expected: one folder per kind, named {', '.join(KINDS)}.")
    return found


def open_photo(path: Path) -> Image.Image:
    """The middle square of a photo, SIDE pixels wide."""
    with Image.open(path) as photo:
        return ImageOps.fit(ImageOps.exif_transpose(photo).convert("RGB"), (SIDE, SIDE), Image.Resampling.LANCZOS)


def load_photos(files: Sequence[Path]) -> Tensor:
    """All photos as bytes, (N, 3, SIDE, SIDE)."""
    with ThreadPoolExecutor() as pool:
        photos = list(tqdm(pool.map(lambda f: np.asarray(open_photo(f)), files), "photos", len(files), mininterval=5))
    return torch.from_numpy(np.stack(photos)).movedim(-1, 1).contiguous()


def cut(photos: Tensor, height: int, width: int, zoom: float) -> Tensor:
    """Random cuts (B, 3, height, width) from -1 to 1; `zoom` 1 shows as much of the photo as fits, 2 half of that.

    The batch shares scale and place, each photo is mirrored or not on its own. What was enlarged is sharpened.
    """
    x = photos.float() / 127.5 - 1
    side = max(round(max(height, width) * zoom), height, width)
    if side != x.shape[-1]:
        x = F.interpolate(x, (side, side), mode="bicubic", antialias=True)
        if side > SIDE:
            x = x + 0.6 * (x - F.avg_pool2d(x, 3, 1, 1, count_include_pad=False))
        x = x.clamp(-1, 1)
    top, left = (int(torch.randint(side - extent + 1, ())) for extent in (height, width))
    x = x[:, :, top : top + height, left : left + width]
    mirrored = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
    return torch.where(mirrored, x.flip(-1), x).contiguous(memory_format=torch.channels_last)
