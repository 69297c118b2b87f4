"""History of one visitor: the runs, newest first, with their saved pictures. Nothing is changed in place."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from ..generate import Generated, Settings
from .form import Form
from .worker import Drawing


class SavedPicture(NamedTuple):
    """Picture file, with the settings and the measurements of how it was drawn."""

    file: Path
    settings: Settings  # with what was left to the pipeline filled in
    sampler: str
    reduced: str  # what was reduced, level by level
    seconds: float
    gigabytes: float | None

    def load(self) -> Drawing:
        """The picture as the worker drew it."""
        with Image.open(self.file) as picture:
            picture.load()
        generated = Generated(picture.convert("RGB"), self.settings, self.sampler, self.seconds, self.reduced)
        return Drawing(generated, self.gigabytes)


class Run(NamedTuple):
    """Run of a visitor: the settings, the dense picture, and the reduced one unless only dense was asked for."""

    number: int
    form: Form
    asked: Settings
    dense: SavedPicture
    drawn_in: int  # the run that drew the dense one
    reduced: SavedPicture | None
    difference: Path | None
    closeness: Mapping[str, float]
    thumbnail: str

    @property
    def result(self) -> SavedPicture:
        """The reduced picture, or the dense one where it is the only one."""
        return self.reduced or self.dense

    @property
    def speedup(self) -> float | None:
        return self.dense.seconds / self.reduced.seconds if self.reduced else None

    @property
    def folder(self) -> Path:
        return self.dense.file.parent


class Session(NamedTuple):
    """Runs of a visitor that are kept, and the number of the last one."""

    runs: tuple[Run, ...] = ()
    last: int = 0

    def add_run(self, run: Run, most: int) -> "Session":
        """Session with one more run. The oldest beyond `most` go with their files; so do those without files."""
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

    def delete_files(self) -> None:
        for run in self.runs:
            shutil.rmtree(run.folder, ignore_errors=True)
