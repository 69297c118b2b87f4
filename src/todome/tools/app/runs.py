"""The runs that are kept: their pictures, written and compared. The file that is shown is the one to download."""

import json
import re
import shutil
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from PIL import Image

from ...levers.plan import LeverOrPlan, Plan
from ..generate import Generated, Settings
from ..measuring.comparing import measures_at
from ..measuring.verdict import SAME
from ..metadata import settings_of
from ..metrics import LPIPS
from ..pictures import BRIGHTER, as_tensor, difference, write_png
from .form import Form, Order
from .presets import name_of
from .start import STARTS, Start

THUMBNAIL = 160  # pixels
MOST = 24  # runs that are kept; the oldest make room
EXAMPLE = Path(__file__).with_name("example")  # which docs/figures/example.py makes


class SavedPicture(NamedTuple):
    """Picture file, with the settings and the measurements of how it was drawn."""

    file: Path
    asked: Settings
    settings: Settings  # with what was left to the pipeline filled in
    sampler: str
    seconds: float
    reduced: str  # what was reduced, level by level

    def load(self) -> Generated:
        """The picture as it was drawn."""
        with Image.open(self.file) as picture:
            return Generated(picture.convert("RGB"), *self[2:])


class Pair(NamedTuple):
    """Reduced picture beside the one with full attention: where they differ, and how close they are."""

    full: SavedPicture
    reduced: SavedPicture
    difference: Path
    closeness: Mapping[str, float]

    @property
    def is_same(self) -> bool:
        return self.closeness["psnr"] >= SAME


class Run(NamedTuple):
    """Pictures with full attention, one for each seed, and each of them with every reduction."""

    form: Form
    full: tuple[SavedPicture, ...]
    pairs: tuple[Pair, ...]  # none where only full attention was asked for
    start: Start | None = None
    strength: float = 1.0
    label: str = ""  # of the example: that it is one

    @property
    def result(self) -> SavedPicture:
        """The first picture that was asked for."""
        return self.pairs[0].reduced if self.pairs else self.full[0]

    @property
    def folder(self) -> Path:
        return self.full[0].file.parent

    @property
    def plan(self) -> Plan | None:
        """The plan that it was drawn with, if it was."""
        found = self.result.asked.reduction
        return found if isinstance(found, Plan) else None

    def pairs_of(self, method: LeverOrPlan | None) -> list[Pair]:
        return [pair for pair in self.pairs if pair.reduced.asked.reduction == method]

    def speedup(self, method: LeverOrPlan | None) -> float | None:
        """Of all pictures of a method together; none where it changed nothing, for it would be chance."""
        pairs = self.pairs_of(method)
        if all(pair.is_same for pair in pairs):
            return None
        return fmean(pair.full.seconds for pair in pairs) / fmean(pair.reduced.seconds for pair in pairs)


class Runs:
    """The last runs, the newest first, each in a folder of its own below the root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kept: list[Run] = []
        self.lock = threading.Lock()
        self.lpips: LPIPS | None = None
        with suppress(ImportError):
            self.lpips = LPIPS.find()

    def save(self, form: Form, order: Order, drawings: list[Generated], check_stop: Any) -> Run:
        """Writes, compares and keeps the pictures of an order. Where that fails or is stopped, nothing of it is left.

        Args:
            form: What the controls were set to.
            order: What was drawn.
            drawings: One for each picture of the order.
            check_stop: Raises where the run was stopped.
        """
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self.root))
        try:
            run = self.write(folder, form, order, drawings)
            check_stop()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        with self.lock:
            self.kept.insert(0, run)
            for old in self.kept[MOST:]:
                shutil.rmtree(old.folder, ignore_errors=True)
            del self.kept[MOST:]
        return run

    def write(self, folder: Path, form: Form, order: Order, drawings: list[Generated]) -> Run:
        full: list[SavedPicture] = []
        pairs: list[Pair] = []
        reference = drawings[0]
        for asked, drawing in zip(order.pictures(), drawings, strict=True):
            saved = save_picture(drawing, folder / file_name(asked), asked, order)
            if asked.reduction is None:
                reference = drawing
                full.append(saved)
            else:
                pairs.append(self.compare(full[-1], saved, reference, drawing))
        small = drawings[min(1, len(drawings) - 1)].picture.copy()
        small.thumbnail((THUMBNAIL, THUMBNAIL))
        small.save(thumbnail_of(folder))
        return Run(form, tuple(full), tuple(pairs), order.start, order.strength)

    @torch.inference_mode()
    def compare(self, full: SavedPicture, saved: SavedPicture, reference: Generated, made: Generated) -> Pair:
        """Measures how close a picture is to full attention (LPIPS where its weights are), draws where they differ."""
        measures = measures_at(made.picture.size, self.lpips)
        pair = as_tensor(made.picture), as_tensor(reference.picture)
        file = saved.file.with_name(f"{saved.file.stem}-difference.png")
        title = f"Where they differ, {BRIGHTER} times as bright"
        write_png(difference(made.picture, reference.picture), file, {"Title": title})
        found = {name: measures[name](*pair).item() for name in ("psnr", "ssim", "lpips") if name in measures}
        return Pair(full, saved, file, found)

    def known(self, order: Order) -> dict[int, Generated]:
        """Pictures of an order with full attention that are there already, by their place in it."""
        kept = {(one.asked, run.start, run.strength): one for run in self.kept for one in run.full}
        wanted = [(asked, order.start, order.strength) for asked in order.pictures()]
        with suppress(FileNotFoundError):  # one has just made room
            return {at: kept[key].load() for at, key in enumerate(wanted) if key in kept}
        return {}

    def forget(self) -> None:
        """Deletes all runs, and the pictures that they started from."""
        with self.lock:
            gone, self.kept = self.kept, []
        for folder in [*(run.folder for run in gone), *self.root.glob(f"{STARTS}*")]:
            shutil.rmtree(folder, ignore_errors=True)


def thumbnail_of(folder: Path) -> Path:
    return folder / "thumbnail.webp"


def save_picture(made: Generated, file: Path, asked: Settings, order: Order) -> SavedPicture:
    more = {"started_from": "a picture", "strength": order.strength}
    texts = made.texts() | ({"todome_page": json.dumps(more)} if order.start else {})
    write_png(made.picture, file, texts)
    return SavedPicture(file, asked, *made[1:])


def file_name(asked: Settings) -> str:
    """Such as "a-red-rose-0-todome.png"."""
    slug = re.sub(r"[^a-z0-9]+", "-", asked.prompt.lower())[:40].strip("-") or "picture"
    method = "dense" if asked.reduction is None else "plan" if isinstance(asked.reduction, Plan) else None
    return f"{slug}-{asked.seed}-{(method or name_of(asked.reduction)).lower()}.png"


def load_example(root: Path) -> Run:
    """The finished example that the page opens with, its files copied to where the page serves them from."""
    folder = root / "example"
    shutil.copytree(EXAMPLE, folder)
    about = json.loads((folder / "example.json").read_text(encoding="utf-8"))

    def saved(name: str) -> SavedPicture:
        file, known = folder / f"{name}.png", about[name]
        settings = settings_of(file)
        return SavedPicture(file, settings, settings, known["sampler"], known["seconds"], known["reduced"])

    pair = Pair(saved("full"), saved("reduced"), folder / "difference.png", about["closeness"])
    label = f"An example, drawn before with {pair.full.asked.model} on {about['machine']}. Yours comes here."
    return Run(Form(), (pair.full,), (pair,), label=label)
