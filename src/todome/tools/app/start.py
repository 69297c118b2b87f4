"""Pictures that visitors upload to start from: decoded with care, kept as files of the visitor's own."""

import hashlib
import io
import secrets
import shutil
import warnings
from base64 import b64decode
from binascii import Error
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageOps, UnidentifiedImageError

from ..pipelines import Size

FORMATS = ("PNG", "JPEG", "WEBP")
MOST_PIXELS = 50 * 10**6  # a file of some kilobytes can claim to be a picture of gigabytes


class Start(NamedTuple):
    """Files of a picture to start from, and of the mask that is white where it may change."""

    folder: Path
    size: Size
    masked: bool
    digest: str  # of what is in the files

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

    def copy_to(self, folder: Path) -> "Start":
        shutil.copytree(self.folder, folder)
        return self._replace(folder=folder)


def fitted(path: Path, size: Size) -> Image.Image:
    with Image.open(path) as picture:
        picture.load()
    return ImageOps.fit(picture, size, Image.Resampling.LANCZOS)


def save_start(root: Path, picture: Any, mask: Any, most: int, side: int) -> Start:
    """Checks what a visitor sent and writes it anew, so that nothing of the files themselves is kept.

    Args:
        root: Folder for a folder of its own.
        picture: As a data URI.
        mask: As a data URI; None or empty where all of the picture may change.
        most: Bytes of each.
        side: Pixels on the longer side that are kept.
    """
    shown = decode(picture, "picture", most).convert("RGB")
    shown.thumbnail((side, side), Image.Resampling.LANCZOS)
    white = decode(mask, "mask", most).convert("L").resize(shown.size) if mask else None
    white = white and white.point([0] * 128 + [255] * 128)
    masked = white is not None and white.getbbox() is not None
    folder = root / secrets.token_urlsafe(16)
    folder.mkdir()
    shown.save(folder / "start.png")
    content = shown.tobytes()
    if white is not None and masked:
        white.save(folder / "mask.png")
        content += white.tobytes()
    return Start(folder, shown.size, masked, hashlib.sha256(content).hexdigest())


def decode(uri: Any, what: str, most: int) -> Image.Image:
    """Picture of a data URI. Only formats that everybody has, and none that unfolds to more than fits in memory."""
    needed = f"a picture as PNG, JPEG or WebP of at most {most // 10**6 or 1} MB and {MOST_PIXELS // 10**6} megapixels"
    refusal = ValueError(f"This {what} cannot be used: it must be {needed}. Choose another file.")
    if not isinstance(uri, str) or len(uri) > most * 4 // 3 + 100 or not uri.startswith("data:image/"):
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
