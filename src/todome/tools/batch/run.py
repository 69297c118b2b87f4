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
from .folder import FAILED, INDEX, MADE, Folder, Record, open_folder, picture_path
from .jobs import Job, batches_of
from .shards import PackingWorker, check_shards, packed_records, shards_to_make, write_index_table

SHOWN = 4  # workers whose rates are shown one by one


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
    """What was done so far, by whom and how fast."""

    total: int
    there: int = 0  # before this run
    made: int = 0
    failed: int = 0
    began: float = field(default_factory=time.perf_counter)
    workers: dict[str, list[int | float]] = field(default_factory=dict)  # pictures, seconds of drawing

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self.failed += record["status"] == FAILED
            if record["status"] == MADE:
                self.made += 1
                worker = self.workers.setdefault(record["worker"], [0, 0.0])
                worker[0] += 1
                worker[1] += record["seconds"] or 0.0

    @property
    def rate(self) -> float:
        return self.made / max(1e-9, time.perf_counter() - self.began)

    def rates(self) -> str:
        """Pictures per second of drawing of each worker; of many, the slowest and the fastest."""
        found = [pictures / seconds for pictures, seconds in self.workers.values() if seconds]
        if len(found) > SHOWN:
            return f"{len(found)} workers, {min(found):.2f} to {max(found):.2f}/s each"
        return " + ".join(f"{rate:.2f}" for rate in found) + "/s" if len(found) > 1 else ""

    def __str__(self) -> str:
        parts = [f"{self.rate:.2f} pictures/s", self.rates(), f"{self.failed} failed" if self.failed else ""]
        return ", ".join(filter(None, parts))


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
        find_packed(folder)
        left = jobs_left(folder, jobs.values(), choices.retry)
        kept = [key for key in jobs if folder.is_made(key)]
        tally = Tally(len(jobs), there=len(kept), failed=len(jobs) - len(kept) - len(left))
        on_progress(tally)
        if left:
            draw_left(folder, left, base, engine, choices, tally, on_progress)
        if choices.shards:
            pack(folder, choices, engine)
        folder.tidy()
        if choices.shards == "parquet":
            write_index_table(out / "index.parquet", list(folder.records.values()))
    return tally


def jobs_left(folder: Folder, jobs: Iterable[Job], retry: bool) -> list[Job]:
    return [job for job in jobs if not folder.is_made(job.key) and (retry or not folder.has_failed(job.key))]


def find_packed(folder: Folder) -> None:
    """What is in shards is made, also where a run was killed before it said so."""
    for record in packed_records(folder.path):
        folder.records[record["key"]] = record
        picture_path(folder.path, record["key"]).unlink(missing_ok=True)


def draw_left(
    folder: Folder,
    left: Sequence[Job],
    base: Settings,
    engine: Engine,
    choices: Choices,
    tally: Tally,
    on_progress: Callable[[Tally], Any],
) -> None:
    sizes = list(dict.fromkeys(job.settings.size for job in left if job.settings.size))
    reductions = list(dict.fromkeys(job.settings.reduction for job in left if job.settings.reduction))
    worker = DrawingWorker(base, sizes, reductions, folder.path)
    run: Any = engine.run(worker, batches_of(left, choices.batch), f"todome batch {folder.path.name}")
    with closing(run) as done:
        for records in done:
            check_shared(folder, records, tally)
            folder.add(records)
            tally.add(records)
            on_progress(tally)
            failures = [record for record in records if record["status"] == FAILED]
            if failures and choices.fail_fast:
                raise RowFailed(f"Row {failures[0]['row']} failed: {failures[0]['error']}")


def check_shared(folder: Folder, records: Sequence[Record], tally: Tally) -> None:
    """Refuses a worker on another machine whose folder is not this one, when it sends its first picture."""
    for record in records:
        unknown = record["status"] == MADE and record["worker"] not in tally.workers
        if unknown and not (folder.path / record["file"]).is_file():
            allowed = "a folder that all machines of the cluster share, under one name"
            remedy = f"{record['worker']} has written {record['file']}, and it is not there"
            raise invalid_value("out", str(folder.path), allowed, remedy)


def pack(folder: Folder, choices: Choices, engine: Engine) -> None:
    assert choices.shards is not None
    made = sorted((one for one in folder.records.values() if one["status"] == MADE), key=lambda one: one["row"])
    items = shards_to_make(folder.path, choices.shards, choices.shard_size, made)
    if items:
        worker = PackingWorker(folder.path, choices.shards)
        for records in engine.run(worker, items, f"todome batch {folder.path.name}: shards"):
            folder.add(records)


def failures_in(out: Path, records: Iterable[Record]) -> str:
    """A sentence on what failed, with the first as an example."""
    found = [record for record in records if record["status"] == FAILED]
    first = f"Row {found[0]['row']}: {found[0]['error']}"
    return f"{len(found)} failed, as {out / INDEX} says. {first} Mend what can be mended, and draw them with --retry."
