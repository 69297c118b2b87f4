"""Picture files of all runs, written and compared. The file that is shown on the page is the one to download."""

import json
import re
import secrets
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import torch
from PIL import Image

from ...plan import Plan
from ..generate import Generated, Settings
from ..measuring.comparing import measures_at
from ..metrics import LPIPS
from ..pictures import BRIGHTER, as_tensor, difference, webp_uri, write_png
from .form import Extras, Form, Order
from .session import Pair, Run, SavedPicture
from .worker import Check, Drawing

THUMBNAIL, QUALITY = 160, 80  # pixels; quality of WebP
STARTED = "start"  # folder of the picture that a run started from, inside that of the run


class PictureStore:
    """Pictures of all visitors, each run in a folder of its own whose name cannot be guessed.

    Args:
        root: Folder in which they are kept.
        most: Bytes that are kept in all; the oldest runs make room.
    """

    def __init__(self, root: Path, most: int) -> None:
        self.root, self.most = root, most
        self.sizes: dict[Path, int] = {}  # bytes of each folder, the oldest first
        self.lock = threading.Lock()  # runs and uploads come from threads of their own
        self.lpips: LPIPS | None = None
        with suppress(ImportError):
            self.lpips = LPIPS.find()

    def save_run(
        self, form: Form, order: Order, number: int, drawings: list[tuple[Drawing, int]], check_stop: Check
    ) -> Run:
        """Writes and compares the pictures of a run. Where that fails or is stopped, nothing of it is left.

        Args:
            form: What the visitor had set.
            order: What was drawn.
            number: Of the run.
            drawings: For each picture of the order, and the number of the run that drew it.
            check_stop: Raises where the run was stopped.
        """
        folder = self.root / secrets.token_urlsafe(16)
        folder.mkdir()
        try:
            extras = order.extras
            if extras.start is not None:
                extras = extras._replace(start=extras.start.copy_to(folder / STARTED))
            run = self.write(folder, Run(number, form, extras, (), ()), order, drawings)
            check_stop()
            self.make_room(folder)
            return run
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def write(self, folder: Path, run: Run, order: Order, drawings: list[tuple[Drawing, int]]) -> Run:
        full: list[SavedPicture] = []
        pairs: list[Pair] = []
        reference = drawings[0][0]
        for asked, (drawing, drawn_in) in zip(order.pictures(), drawings, strict=True):
            saved = save_picture(drawing, folder / file_name(asked), asked, order.extras, drawn_in)
            if asked.reduction is None:
                reference = drawing
                full.append(saved)
            else:
                pairs.append(self.compare(full[-1], saved, reference.generated, drawing.generated))
        shown = drawings[min(1, len(drawings) - 1)][0].generated.picture
        return run._replace(full=tuple(full), pairs=tuple(pairs), thumbnail=thumbnail(shown))

    @torch.inference_mode()
    def compare(self, full: SavedPicture, saved: SavedPicture, reference: Generated, made: Generated) -> Pair:
        """Measures how close a picture is to full attention (LPIPS where its weights are), draws where they differ."""
        measures = measures_at(made.picture.size, self.lpips)
        pair = as_tensor(made.picture), as_tensor(reference.picture)
        file = saved.file.with_name(f"{saved.file.stem}-difference.png")
        title = f"Where they differ, {BRIGHTER} times as bright"
        write_png(difference(made.picture, reference.picture, BRIGHTER), file, {"Title": title})
        found = {name: measures[name](*pair).item() for name in ("psnr", "ssim", "lpips") if name in measures}
        return Pair(full, saved, file, found)

    def make_room(self, newest: Path) -> None:
        """Removes the oldest folders, but never the newest, until all of them together are small enough."""
        with self.lock:
            self.sizes[newest] = sum(file.stat().st_size for file in newest.rglob("*") if file.is_file())
            if sum(self.sizes.values()) <= self.most:
                return
            self.sizes = {folder: size for folder, size in self.sizes.items() if folder.exists()}
            for folder in list(self.sizes)[:-1]:
                if sum(self.sizes.values()) <= self.most:
                    return
                shutil.rmtree(folder, ignore_errors=True)
                del self.sizes[folder]


def save_picture(drawing: Drawing, file: Path, asked: Settings, extras: Extras, drawn_in: int) -> SavedPicture:
    generated = drawing.generated
    more = {"lora": extras.lora, "lora_weight": extras.weight} if extras.lora else {}
    more |= {"started_from": "a picture", "strength": extras.strength} if extras.start else {}
    write_png(generated.picture, file, {**generated.texts(), **({"todome_page": json.dumps(more)} if more else {})})
    return SavedPicture(
        file,
        asked,
        generated.settings,
        generated.sampler,
        generated.reduced,
        generated.seconds,
        drawing.gigabytes,
        drawn_in,
    )


def thumbnail(picture: Image.Image) -> str:
    small = picture.copy()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    return webp_uri(small, QUALITY)


def file_name(asked: Settings) -> str:
    """Such as "a-red-rose-0-todome.png"."""
    return f"{slug(asked.prompt)}-{asked.seed}-{method_of(asked).lower()}.png"


def method_of(asked: Settings) -> str:
    reduction = asked.reduction
    if reduction is None:
        return "dense"
    if isinstance(reduction, Plan):
        return "plan"
    return {"dither": "todome", "fixed": "ToDo"}.get(getattr(reduction, "phase", ""), "ToMe")


def slug(prompt: str) -> str:
    """Prompt as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", prompt.lower())[:40].strip("-") or "picture"
