"""History of one visitor: the runs, newest first, with their saved pictures. Nothing is changed in place."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from PIL import Image

from ...plan import Plan
from ...reductions import Reduction
from ..generate import Generated, Settings
from ..measuring.verdict import SAME
from .form import Extras, Form
from .start import Start
from .tuning import Tuned
from .worker import Drawing


class SavedPicture(NamedTuple):
    """Picture file, with the settings and the measurements of how it was drawn."""

    file: Path
    asked: Settings
    settings: Settings  # with what was left to the pipeline filled in
    sampler: str
    reduced: str  # what was reduced, level by level
    seconds: float
    gigabytes: float | None = None
    run: int = 0  # that drew it

    def load(self) -> Drawing:
        """The picture as the worker drew it."""
        with Image.open(self.file) as picture:
            picture.load()
        generated = Generated(picture.convert("RGB"), self.settings, self.sampler, self.seconds, self.reduced)
        return Drawing(generated, self.gigabytes)


class Pair(NamedTuple):
    """Reduced picture beside the one with full attention: where they differ, and how close they are."""

    full: SavedPicture
    reduced: SavedPicture
    difference: Path
    closeness: Mapping[str, float]

    @property
    def speedup(self) -> float:
        return self.full.seconds / self.reduced.seconds

    @property
    def psnr(self) -> float:
        return self.closeness["psnr"]


class Run(NamedTuple):
    """Run of a visitor: pictures with full attention, one for each seed, and each of them with every reduction."""

    number: int
    form: Form
    extras: Extras
    full: tuple[SavedPicture, ...]
    pairs: tuple[Pair, ...]  # none where only full attention was asked for
    thumbnail: str = ""

    @property
    def result(self) -> SavedPicture:
        """The first picture that was asked for."""
        return self.pairs[0].reduced if self.pairs else self.full[0]

    @property
    def folder(self) -> Path:
        return self.full[0].file.parent

    @property
    def methods(self) -> tuple[Reduction | None, ...]:
        return tuple(dict.fromkeys(pair.reduced.asked.reduction for pair in self.pairs))

    def pairs_of(self, method: Reduction | None) -> list[Pair]:
        return [pair for pair in self.pairs if pair.reduced.asked.reduction == method]

    def speedup(self, method: Reduction | None) -> float | None:
        """Of all pictures of a method together; none where it changed nothing, for it would be chance."""
        pairs = self.pairs_of(method)
        if all(pair.psnr >= SAME for pair in pairs):
            return None
        return fmean(pair.full.seconds for pair in pairs) / fmean(pair.reduced.seconds for pair in pairs)

    def psnr(self, method: Reduction | None) -> float:
        """Of the picture that is farthest from full attention."""
        return min(pair.psnr for pair in self.pairs_of(method))


class Session(NamedTuple):
    """Runs of a visitor that are kept, the number of the last one, the picture to start from, what was tuned."""

    runs: tuple[Run, ...] = ()
    last: int = 0
    start: Start | None = None
    tuned: Tuned | None = None
    plan: Plan | None = None  # that pictures are drawn with

    def add_run(self, run: Run, most: int) -> "Session":
        """Session with one more run. The oldest beyond `most` go with their files; so do those without files."""
        for old in self.runs[most - 1 :]:
            shutil.rmtree(old.folder, ignore_errors=True)
        kept = [old for old in self.runs[: most - 1] if old.folder.is_dir()]
        return self._replace(runs=(run, *kept), last=run.number)

    def with_start(self, start: Start | None) -> "Session":
        """Session with another picture to start from, or none. The file of the former one is deleted."""
        if self.start is not None:
            shutil.rmtree(self.start.folder, ignore_errors=True)
        return self._replace(start=start)

    def run(self, number: object) -> Run | None:
        return next((run for run in self.runs if run.number == number), None)

    def known(self, settings: Settings, extras: Extras) -> SavedPicture | None:
        """The picture with full attention of these settings, where an earlier run has it."""
        key = without_folder(extras)
        found = [one for run in self.runs if without_folder(run.extras) == key for one in run.full]
        return next((one for one in found if one.asked == settings and one.file.is_file()), None)

    def delete_files(self) -> None:
        self.with_start(None)
        for run in self.runs:
            shutil.rmtree(run.folder, ignore_errors=True)


def without_folder(extras: Extras) -> Extras:
    """Extras to compare: two starts are the same where what is in their files is."""
    return extras._replace(start=extras.start and extras.start._replace(folder=Path()))
