"""The runs of one visitor, newest first. Nothing here is shared, and nothing is changed in place."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from ..generate import Generated, Settings
from .form import Form
from .worker import Drawing


class Shot(NamedTuple):
    """A picture in its file, and how it came about."""

    file: Path
    made: Settings  # what it was really made with
    sampler: str
    reduced: str  # what was reduced, level by level
    seconds: float
    gigabytes: float | None

    def drawing(self) -> Drawing:
        """As the studio made it."""
        with Image.open(self.file) as picture:
            picture.load()
        made = Generated(picture.convert("RGB"), self.made, self.sampler, self.seconds, self.reduced)
        return Drawing(made, self.gigabytes)


class Run(NamedTuple):
    """What was asked for and what came of it: the dense picture, and the reduced one unless dense was all."""

    number: int
    form: Form
    asked: Settings
    dense: Shot
    drawn_in: int  # the run that drew the dense one
    reduced: Shot | None
    difference: Path | None
    closeness: Mapping[str, float]
    thumbnail: str

    @property
    def shot(self) -> Shot:
        """The one that it is about."""
        return self.reduced or self.dense

    @property
    def speedup(self) -> float | None:
        return self.dense.seconds / self.reduced.seconds if self.reduced else None

    @property
    def folder(self) -> Path:
        return self.dense.file.parent


class Session(NamedTuple):
    """Everything a visitor has made since the page was opened, as far as it is kept."""

    runs: tuple[Run, ...] = ()
    made: int = 0

    def with_run(self, run: Run, most: int) -> "Session":
        """With one more; the files of those that make room go with them, and so do runs without files."""
        for old in self.runs[most - 1 :]:
            shutil.rmtree(old.folder, ignore_errors=True)
        kept = [old for old in self.runs[: most - 1] if old.folder.is_dir()]
        return Session((run, *kept), run.number)

    def run(self, number: int) -> Run | None:
        return next((run for run in self.runs if run.number == number), None)

    def dense_of(self, settings: Settings) -> Run | None:
        """The run that has the dense picture of these settings already."""
        wanted = replace(settings, reduction=None)
        return next((run for run in self.runs if replace(run.asked, reduction=None) == wanted), None)

    def forget(self) -> None:
        for run in self.runs:
            shutil.rmtree(run.folder, ignore_errors=True)
