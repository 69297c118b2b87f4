"""Puts what a run has made into files, and compares it. The file that is seen on the page is the one to download."""

import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

import torch
from PIL import Image

from ..demo import BRIGHTER, as_tensor
from ..generate import Generated, Settings
from ..measuring.comparing import measures_at
from ..metrics import LPIPS
from ..pictures import difference, webp_uri, write_png
from .form import Form
from .session import Run, Shot
from .worker import Drawing

THUMBNAIL, QUALITY = 128, 80  # pixels, of WebP


class Archive:
    """Pictures of all visitors, each run in a folder of its own whose name cannot be guessed.

    Args:
        root: Folder in which they are kept.
        most: Bytes that are kept in all; the oldest runs make room.
    """

    def __init__(self, root: Path, most: int) -> None:
        self.root, self.most = root, most
        self.sizes: dict[Path, int] = {}  # of the folders, the oldest first
        self.lpips: LPIPS | None = None
        with suppress(ImportError):
            self.lpips = LPIPS.find()

    def kept(
        self, form: Form, asked: Settings, number: int, drawn_in: int, dense: Drawing, reduced: Drawing | None
    ) -> Run:
        """A run, written and compared; where that fails, nothing of it is left."""
        folder = self.root / secrets.token_urlsafe(16)
        folder.mkdir()
        try:
            stem = f"{slug(asked.prompt)}-{asked.seed}"
            changed = None if reduced is None else folder / f"{stem}-difference.png"
            run = Run(
                number=number,
                form=form,
                asked=asked,
                dense=shot(dense, folder / f"{stem}-dense.png"),
                drawn_in=drawn_in,
                reduced=reduced and shot(reduced, folder / f"{stem}-{form.method.lower()}.png"),
                difference=changed,
                closeness={} if reduced is None else self.compared(reduced.generated, dense.generated, changed),
                thumbnail=thumbnail((reduced or dense).generated.picture),
            )
            self.make_room(folder)
            return run
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def make_room(self, newest: Path) -> None:
        """Removes the oldest runs, but never the newest, until all of them together are small enough."""
        self.sizes[newest] = sum(file.stat().st_size for file in newest.iterdir())
        if sum(self.sizes.values()) <= self.most:
            return
        self.sizes = {folder: size for folder, size in self.sizes.items() if folder.exists()}
        for folder in list(self.sizes)[:-1]:
            if sum(self.sizes.values()) <= self.most:
                return
            shutil.rmtree(folder, ignore_errors=True)
            del self.sizes[folder]

    @torch.inference_mode()
    def compared(self, made: Generated, dense: Generated, file: Path | None) -> dict[str, float]:
        """How close to dense: PSNR, SSIM, and LPIPS where its weights are. The file shows where they differ."""
        measures = measures_at(made.picture.size, self.lpips)
        pair = as_tensor(made.picture), as_tensor(dense.picture)
        if file is not None:
            title = f"Where they differ, {BRIGHTER} times as bright"
            write_png(difference(made.picture, dense.picture, BRIGHTER), file, {"Title": title})
        return {name: measures[name](*pair).item() for name in ("psnr", "ssim", "lpips") if name in measures}


def shot(drawing: Drawing, file: Path) -> Shot:
    made = drawing.generated
    write_png(made.picture, file, made.texts())
    return Shot(file, made.settings, made.sampler, made.reduced, made.seconds, drawing.gigabytes)


def thumbnail(picture: Image.Image) -> str:
    small = picture.copy()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    return webp_uri(small, QUALITY)


def slug(prompt: str) -> str:
    """A prompt as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", prompt.lower())[:40].strip("-") or "picture"
