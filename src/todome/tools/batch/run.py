"""A batch from beginning to end: what is left to do, done by an engine, and written down as it comes."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import invalid_value
from ..engines import Engine
from ..settings import Settings
from .drawing import DrawingWorker
from .folder import FAILED, INDEX, MADE, Folder, Record, open_folder
from .jobs import Job, batches_of
from .shards import check_shards, pack


@dataclass(frozen=True)
class Choices:
    """How a batch is drawn, none of which changes a picture by more than rounding."""

    batch: int = 1  # pictures drawn at once
    retry: bool = False  # what failed before
    fail_fast: bool = False  # ends at the first failure
    shards: str | None = None
    shard_size: int = 1000

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise invalid_value("batch", self.batch, "a whole number of at least 1", "More are faster on a GPU")
        check_shards(self.shards, self.shard_size)


@dataclass
class Tally:
    """What was done so far, and how fast."""

    total: int
    there: int = 0  # before this run
    made: int = 0
    failed: int = 0
    began: float = field(default_factory=time.perf_counter)

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self.made += record["status"] == MADE
            self.failed += record["status"] == FAILED

    def __str__(self) -> str:
        rate = self.made / max(1e-9, time.perf_counter() - self.began)
        return f"{rate:.2f} pictures/s" + f", {self.failed} failed" * bool(self.failed)


class RowFailed(RuntimeError):
    """A row failed where the first failure was to end the run."""


def run_batch(
    jobs: Mapping[str, Job],
    base: Settings,
    out: Path,
    engine: Engine,
    choices: Choices = Choices(),  # noqa: B008  # frozen
    on_progress: Callable[[Tally], Any] = lambda tally: None,
) -> Tally:
    """Draws every job that is not drawn yet. The same call goes on where another one was interrupted.

    Args:
        jobs: By key: `jobs_from(rows, base)`.
        base: The model, its LoRAs and its VAE, and the defaults of rows.
        out: The folder.
        engine: Who draws.
        choices: How.
        on_progress: Called when something was done.
    """
    with open_folder(out, base.model) as folder:
        unmade = [job for job in jobs.values() if not folder.is_made(job.key)]
        left = [job for job in unmade if choices.retry or not folder.has_failed(job.key)]
        tally = Tally(len(jobs), there=len(jobs) - len(unmade), failed=len(unmade) - len(left))
        on_progress(tally)
        known: set[str] = set()
        with closing(records_of(folder, left, base, engine, choices.batch)) as drawn:
            for records in drawn:
                check_shared(folder.path, records, known)
                folder.add(records)
                tally.add(records)
                on_progress(tally)
                if choices.fail_fast:
                    check_none_failed(records)
        if choices.shards:
            pack(folder, choices.shards, choices.shard_size)
        folder.tidy()
    return tally


def records_of(folder: Folder, left: Sequence[Job], base: Settings, engine: Engine, most: int) -> Any:
    """Records of the jobs as they come. Closing it ends the work."""
    sizes = list(dict.fromkeys(job.settings.size for job in left if job.settings.size))
    reductions = list(dict.fromkeys(job.settings.reduction for job in left if job.settings.reduction))
    worker = DrawingWorker(base, sizes, reductions, folder.path)
    return engine.run(worker, batches_of(left, most), f"todome batch {folder.path.name}")


def check_none_failed(records: Sequence[Record]) -> None:
    for record in records:
        if record["status"] == FAILED:
            raise RowFailed(f"Row {record['row']} failed: {record['error']}")


def check_shared(folder: Path, records: Sequence[Record], known: set[str]) -> None:
    """Refuses a worker on another machine whose folder is not this one, when it sends its first picture."""
    for record in records:
        if record["status"] == FAILED or record["worker"] in known:
            continue
        if not (folder / record["file"]).is_file():
            allowed = "a folder that all machines of the cluster share, under one name"
            remedy = f"{record['worker']} has written {record['file']}, and it is not there"
            raise invalid_value("out", str(folder), allowed, remedy)
        known.add(record["worker"])


def failures_in(out: Path, records: Iterable[Record]) -> str:
    """A sentence on what failed, with the first as an example."""
    found = [record for record in records if record["status"] == FAILED]
    first = f"Row {found[0]['row']}: {found[0]['error']}"
    return f"{len(found)} failed, as {out / INDEX} says. {first} Mend what can be mended, and draw them with --retry."
