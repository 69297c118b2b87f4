"""The picture to start from: its part of the page; decoded with care, kept as files that are written anew."""

import hashlib
import io
import warnings
from base64 import b64decode
from binascii import Error
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageOps, UnidentifiedImageError

from ..pipelines import Size
from .limits import UPLOAD

STARTS = "start-"  # beginning of the names of their folders
FORMATS = ("PNG", "JPEG", "WEBP")
MOST_PIXELS = 50 * 10**6  # a file of some kilobytes can claim to be a picture of gigabytes
NEEDED = f"a picture as PNG, JPEG or WebP of at most {UPLOAD // 10**6} MB and {MOST_PIXELS // 10**6} megapixels"


class Start(NamedTuple):
    """Files of a picture to start from, and of the mask that is white where it may change."""

    folder: Path  # named by what is in the files
    size: Size
    masked: bool

    @property
    def picture(self) -> Path:
        return self.folder / "start.png"

    @property
    def mask(self) -> Path | None:
        return self.folder / "mask.png" if self.masked else None

    def load(self, size: Size) -> dict[str, Image.Image]:
        """Picture and mask at the size to draw: cut to its shape at the middle."""
        found = {"image": self.picture} | ({"mask_image": self.mask} if self.mask else {})
        return {name: fitted(path, size) for name, path in found.items()}

    def __str__(self) -> str:
        what = "the part you painted is drawn anew" if self.masked else "all of it is drawn anew"
        size = " x ".join(map(str, self.size))
        return f"Draw starts from your picture ({size}), cut to the size that is set; {what}."


def fitted(path: Path, size: Size) -> Image.Image:
    with Image.open(path) as picture:
        picture.load()
    return ImageOps.fit(picture, size, Image.Resampling.LANCZOS)


def save_start(root: Path, picture: Any, mask: Any, side: int) -> Start:
    """Checks what was sent and writes it anew, so that nothing of the files themselves is kept.

    Args:
        root: Folder for a folder of its own.
        picture: As a data URI.
        mask: As a data URI; None or empty where all of the picture may change.
        side: Pixels on the longer side that are kept.
    """
    shown = decode(picture, "picture").convert("RGB")
    shown.thumbnail((side, side), Image.Resampling.LANCZOS)
    white = decode(mask, "mask").convert("L").resize(shown.size) if mask else Image.new("L", shown.size)
    white = white.point([0] * 128 + [255] * 128)
    digest = hashlib.sha256(f"{shown.size}".encode() + shown.tobytes() + white.tobytes()).hexdigest()
    start = Start(root / f"{STARTS}{digest[:20]}", shown.size, masked=white.getbbox() is not None)
    start.folder.mkdir(exist_ok=True)
    shown.save(start.picture)
    if start.mask is not None:
        white.save(start.mask)
    return start


def decode(uri: Any, what: str) -> Image.Image:
    """Picture of a data URI. Only formats that everybody has, and none that unfolds to more than fits in memory."""
    refusal = ValueError(f"This {what} cannot be used: it must be {NEEDED}. Choose another file.")
    if not isinstance(uri, str) or len(uri) > UPLOAD * 4 // 3 + 100 or not uri.startswith("data:image/"):
        raise refusal
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            content = b64decode(uri.partition(",")[2], validate=True)
            with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
                if picture.width * picture.height > MOST_PIXELS:
                    raise refusal
                picture.load()
                return ImageOps.exif_transpose(picture)
    except (Error, OSError, SyntaxError, UnidentifiedImageError, ValueError, Warning, Image.DecompressionBombError):
        raise refusal from None
