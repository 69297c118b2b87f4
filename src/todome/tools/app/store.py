"""Picture files of all runs, written and compared. The file that is shown on the page is the one to download."""

import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

import torch
from PIL import Image

from ..generate import Generated, Settings
from ..measuring.comparing import measures_at
from ..metrics import LPIPS
from ..pictures import BRIGHTER, as_tensor, difference, webp_uri, write_png
from .form import Form
from .session import Run, SavedPicture
from .worker import Check, Drawing

THUMBNAIL, QUALITY = 128, 80  # pixels; quality of WebP


class PictureStore:
    """Pictures of all visitors, each run in a folder of its own whose name cannot be guessed.

    Args:
        root: Folder in which they are kept.
        most: Bytes that are kept in all; the oldest runs make room.
    """

    def __init__(self, root: Path, most: int) -> None:
        self.root, self.most = root, most
        self.sizes: dict[Path, int] = {}  # bytes of each folder, the oldest first
        self.lpips: LPIPS | None = None
        with suppress(ImportError):
            self.lpips = LPIPS.find()

    def save_run(
        self,
        form: Form,
        asked: Settings,
        number: int,
        drawn_in: int,
        dense: Drawing,
        reduced: Drawing | None,
        check_stop: Check,
    ) -> Run:
        """Writes and compares the pictures of a run. Where that fails or is stopped, nothing of it is left."""
        folder = self.root / secrets.token_urlsafe(16)
        folder.mkdir()
        try:
            stem = f"{slug(asked.prompt)}-{asked.seed}"
            changed = None if reduced is None else folder / f"{stem}-difference.png"
            run = Run(
                number=number,
                form=form,
                asked=asked,
                dense=save_picture(dense, folder / f"{stem}-dense.png"),
                drawn_in=drawn_in,
                reduced=reduced and save_picture(reduced, folder / f"{stem}-{form.method.lower()}.png"),
                difference=changed,
                closeness={} if reduced is None else self.compare(reduced.generated, dense.generated, changed),
                thumbnail=thumbnail((reduced or dense).generated.picture),
            )
            check_stop()
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
    def compare(self, reduced: Generated, dense: Generated, file: Path | None) -> dict[str, float]:
        """Measures how close a picture is to dense (LPIPS where its weights are), and draws where they differ."""
        measures = measures_at(reduced.picture.size, self.lpips)
        pair = as_tensor(reduced.picture), as_tensor(dense.picture)
        if file is not None:
            title = f"Where they differ, {BRIGHTER} times as bright"
            write_png(difference(reduced.picture, dense.picture, BRIGHTER), file, {"Title": title})
        return {name: measures[name](*pair).item() for name in ("psnr", "ssim", "lpips") if name in measures}


def save_picture(drawing: Drawing, file: Path) -> SavedPicture:
    generated = drawing.generated
    write_png(generated.picture, file, generated.texts())
    return SavedPicture(
        file, generated.settings, generated.sampler, generated.reduced, generated.seconds, drawing.gigabytes
    )


def thumbnail(picture: Image.Image) -> str:
    small = picture.copy()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    return webp_uri(small, QUALITY)


def slug(prompt: str) -> str:
    """Prompt as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", prompt.lower())[:40].strip("-") or "picture"
