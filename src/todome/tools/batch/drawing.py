"""Worker that draws jobs: the pipeline is opened once, pictures go into their files, a small record of each returns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import NothingToReduce
from ...levers.plan import LeverOrPlan
from ...patch import apply
from ..engines import Place
from ..generate import Generated, make_pictures, open_for
from ..metadata import settings_of
from ..pictures import write_png
from ..pipelines import Size, check_size
from ..settings import Settings
from .folder import FAILED, MADE, Record, picture_path
from .jobs import Job

NOWHERE = Place("", "auto")


@dataclass
class DrawingWorker:
    """Draws the jobs of a batch into a folder."""

    base: Settings  # the model and what goes with it
    sizes: Sequence[Size]
    reductions: Sequence[LeverOrPlan]
    folder: Path
    pipe: Any = None
    place: Place = NOWHERE

    def open(self, place: Place) -> None:
        """Opens the pipeline. What it cannot do of any row is refused before the first picture."""
        self.place = place
        self.pipe = open_for(replace(self.base, device=place.device))
        self.pipe.set_progress_bar_config(disable=True)
        for size in self.sizes:
            check_size(self.pipe, size)
        for reduction in self.reductions:
            try:
                apply(self.pipe, reduction).remove()
            except NothingToReduce as error:
                raise NothingToReduce(f"{error} Draw with --dense, or with the method dense in the row.") from None

    def close(self) -> None:
        self.pipe = None

    def work(self, item: Sequence[Job]) -> list[Record]:
        """A record of each job. What a worker that was lost has drawn already is not drawn again."""
        files = {job: picture_path(self.folder, job.key) for job in item}
        found = [self.record(job, settings_of(file)) for job, file in files.items() if file.is_file()]
        left = [job for job, file in files.items() if not file.is_file()]
        return found + (self.draw(left) if left else [])

    def draw(self, jobs: Sequence[Job]) -> list[Record]:
        """Where a call fails, each of its pictures is tried alone: the others are not to suffer from one."""
        try:
            made = make_pictures([replace(job.settings, device=self.place.device) for job in jobs], self.pipe)
        except (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
            if len(jobs) > 1:
                return [record for job in jobs for record in self.draw([job])]
            return [failed(jobs[0], error, self.place)]
        return [self.write(job, one, len(jobs)) for job, one in zip(jobs, made, strict=True)]

    def write(self, job: Job, made: Generated, together: int) -> Record:
        """What keeps one picture from its file keeps all: it ends the run."""
        path = picture_path(self.folder, job.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_png(made.picture, path, made.texts(), force=True)
        return self.record(job, made.settings, round(made.seconds, 4), together)

    def record(self, job: Job, made: Settings, seconds: float | None = None, together: int | None = None) -> Record:
        """Of a picture that is in its file. Of one that was there without a record nobody knows how long it took."""
        file = picture_path(self.folder, job.key).relative_to(self.folder).as_posix()
        machine = {"worker": self.place.name, "device": made.device, "dtype": made.dtype}
        times = {"seconds": seconds, "batch": together}
        return {**facts(job, made), "status": MADE, "file": file, **machine, **times}


def facts(job: Job, settings: Settings) -> Record:
    """What a picture is, in columns."""
    width, height = settings.size or (None, None)
    names = ("prompt", "negative", "seed", "steps", "guidance", "scheduler", "model")
    own = {name: getattr(settings, name) for name in names}
    size = {"width": width, "height": height}
    return {"key": job.key, "row": job.row, **own, **size, "method": str(settings.reduction or "dense")}


def failed(job: Job, error: Exception, place: Place) -> Record:
    sentence = str(error).strip() or type(error).__name__
    return {**facts(job, job.settings), "status": FAILED, "error": sentence, "worker": place.name}
