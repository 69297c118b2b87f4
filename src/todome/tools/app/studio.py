"""The only thing that touches the pipeline: one thread that draws, for one visitor after the other.

A job tells what happens through a queue of events. Whatever ends it (the last step, an error, a visitor who stops it or
leaves), the pipeline is as it was and the next one's turn has come.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import torch

from ...errors import invalid_value
from ..generate import Generated, Settings, Step, make_picture
from ..pipelines import Size, check_size
from .previews import Previews

log = logging.getLogger("todome.app")

BEAT = 0.25  # seconds after which one who waits looks up
MENDABLE = (ImportError, MemoryError, ValueError)  # their messages are for people; others are for the log
UNKNOWN = "Something went wrong on the server, and its log says what. Nothing is lost: draw again, or other settings."


class Drawing(NamedTuple):
    """A picture and the GPU's memory at its peak, in GB, where there is a GPU."""

    made: Generated
    gigabytes: float | None = None


class Waiting(NamedTuple):
    """So many runs come first."""

    before: int


class Progress(NamedTuple):
    """So many steps of a picture are done; the preview is a data URI, or empty where there is no new one."""

    dense: bool
    done: int
    steps: int
    preview: str = ""


class Finished(NamedTuple):
    """What was made of the pictures."""

    kept: Any


class Failed(NamedTuple):
    sentence: str


class Stopped(NamedTuple):
    pass


Event: TypeAlias = Waiting | Progress | Finished | Failed | Stopped
Keep: TypeAlias = Callable[[Drawing, Drawing | None], Any]  # given the dense picture and the reduced one


class Stop(Exception):
    """Ends a pipeline's call, so that whatever was put on the pipeline for it is taken off."""


@dataclass(eq=False)
class Job:
    """A run that somebody wants: the reduced picture and, unless it is known, the dense one."""

    settings: Settings
    dense: Drawing | None
    keep: Keep
    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    stopping: threading.Event = field(default_factory=threading.Event)
    future: "Future[None] | None" = None

    def stop(self) -> None:
        self.stopping.set()
        if self.future is not None and self.future.cancel():  # its turn never came
            self.events.put(Stopped())


class Studio:
    """A pipeline, its thread, and those who wait for it."""

    def __init__(self, pipe: Any, waiting: int) -> None:
        self.pipe, self.waiting = pipe, waiting
        self.worker = ThreadPoolExecutor(1, "todome-studio")
        self.jobs: dict[str, Job] = {}  # by their owners, in the order in which they came
        self.door = threading.Lock()
        self.warm: set[Size] = set()
        pipe.set_progress_bar_config(disable=True)

    def draw(self, owner: str, settings: Settings, keep: Keep, dense: Drawing | None = None) -> Iterator[Event]:
        """Tells how a run goes, up to its end. Closing the iterator stops the run.

        Args:
            owner: Whose run it is; everyone has one at a time.
            settings: Of the reduced picture, or of the dense one where that is all.
            keep: What to do with the pictures. Done by the same thread, so that it takes no time from the next run.
            dense: The dense picture of these settings, where it is known.
        """
        if settings.size is not None:
            check_size(self.pipe, settings.size)
        job = self.admitted(owner, Job(settings, dense, keep))
        try:
            while True:
                event = self.next_event(job)
                yield event
                if isinstance(event, Finished | Failed | Stopped):
                    return
        finally:
            job.stop()
            with self.door:
                self.jobs.pop(owner, None)

    def admitted(self, owner: str, job: Job) -> Job:
        with self.door:
            if owner in self.jobs:
                raise invalid_value("draw", "now", "one run at a time for each visitor", "Wait for yours, or stop it")
            if len(self.jobs) > self.waiting:
                raise invalid_value("draw", "now", f"up to {self.waiting} runs that wait", "Try again in a minute")
            self.jobs[owner] = job
            job.future = self.worker.submit(self.work, job)
        return job

    def next_event(self, job: Job) -> Event:
        """The newest there is: nobody needs to see steps that are over. An end is always the newest."""
        try:
            event = job.events.get(timeout=BEAT)
        except queue.Empty:
            return Waiting(self.before(job))
        while not job.events.empty():
            older, event = event, job.events.get()
            if isinstance(older, Progress) and isinstance(event, Progress) and older.dense == event.dense:
                event = event._replace(preview=event.preview or older.preview)
        return event

    def before(self, job: Job) -> int:
        with self.door:
            return list(self.jobs.values()).index(job)

    def stop(self, owner: str) -> None:
        """Stops what the owner has under way, if anything."""
        with self.door:
            job = self.jobs.get(owner)
        if job is not None:
            job.stop()

    def close(self) -> None:
        with self.door:
            jobs = list(self.jobs.values())
        for job in jobs:
            job.stop()
        self.worker.shutdown(cancel_futures=True)

    def work(self, job: Job) -> None:
        """What the thread does with a job. It always ends with an event that says how."""
        try:
            end = self.drawn(job)
        except Stop:
            end = Stopped()
        except MENDABLE as error:
            end = Failed(str(error))
        except Exception:
            log.exception("A run failed: %s", job.settings)
            end = Failed(UNKNOWN)
        job.events.put(end)

    def drawn(self, job: Job) -> Finished:
        alone = replace(job.settings, reduction=None)
        self.warm_up(alone, job)
        dense = job.dense or self.picture(alone, job)
        reduced = None if job.settings.reduction is None else self.picture(job.settings, job)
        return Finished(job.keep(dense, reduced))

    def warm_up(self, settings: Settings, job: Job) -> None:
        """One step, for the first call at a size is slow whatever it does."""
        check_stop(job)
        if settings.size is not None and settings.size not in self.warm:
            job.events.put(Progress(job.dense is None, 0, settings.steps or 1))
            make_picture(replace(settings, steps=1, scheduler=None), self.pipe, lambda _: check_stop(job))
            self.warm.add(settings.size)

    def picture(self, settings: Settings, job: Job) -> Drawing:
        device = self.pipe.device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        made = make_picture(settings, self.pipe, self.telling(settings, job))
        check_stop(job)
        return Drawing(made, torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else None)

    def telling(self, settings: Settings, job: Job) -> Callable[[Step], None]:
        previews, dense = Previews(self.pipe), settings.reduction is None
        job.events.put(Progress(dense, 0, settings.steps or 1))

        def tell(step: Step) -> None:
            check_stop(job)
            job.events.put(Progress(dense, step.done, step.steps, previews.of(step)))

        return tell


def check_stop(job: Job) -> None:
    if job.stopping.is_set():
        raise Stop
