"""Queue of drawing jobs, worked off one after the other by the one thread that uses the pipeline.

A job reports through a queue of events. However it ends (last step, error, stopped by its visitor, a closed tab), the
pipeline is left as it was and the next job is drawn.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import torch

from ..generate import Generated, Settings, Step, make_picture
from ..pipelines import Size, check_size
from .previews import Previews

log = logging.getLogger("todome.app")

POLL_SECONDS = 0.25  # how long a visitor waits for an event before the queue is looked at again
CLOSE_SECONDS = 0.5  # how long the end of a step is waited for when the page is closed
USER_ERRORS = (ImportError, MemoryError, ValueError)  # their messages are for visitors; others are for the log
UNKNOWN = "Something went wrong on the server, and its log says what. Nothing is lost: draw again, or other settings."


class Drawing(NamedTuple):
    """Picture as it was generated, and the peak of the GPU's memory in GB, where there is a GPU."""

    generated: Generated
    gigabytes: float | None = None


class Visitor(NamedTuple):
    """Session of a browser tab, and the address it comes from. Sessions can be made up, addresses hardly."""

    session: str
    address: str = ""


class Waiting(NamedTuple):
    """Event: this many runs come first."""

    before: int


class Progress(NamedTuple):
    """Event: this many steps of a picture are done. The preview is a data URI, or empty where there is no new one."""

    dense: bool
    done: int
    steps: int
    preview: str = ""


class Finished(NamedTuple):
    """Event: the pictures are drawn, and this is what `save` made of them."""

    result: Any


class Failed(NamedTuple):
    """Event: the run ended with an error, which the sentence explains."""

    sentence: str


class Stopped(NamedTuple):
    """Event: the run was stopped by its visitor, or because the page is closed."""


Event: TypeAlias = Waiting | Progress | Finished | Failed | Stopped
END = (Finished, Failed, Stopped)
Check: TypeAlias = Callable[[], None]  # raises Stop where the run was stopped
Save: TypeAlias = Callable[[Drawing, Drawing | None, Check], Any]  # given the dense picture and the reduced one


class Stop(Exception):
    """Raised in a step to end the pipeline's call, so that whatever was put on the pipeline for it is removed."""


@dataclass(eq=False)
class Job:
    """One run of a visitor: the reduced picture and, unless it is known, the dense one."""

    visitor: Visitor
    settings: Settings
    dense: Drawing | None
    save: Save
    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    stopping: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Ends the run for its visitor at once, and for the pipeline after the step that is being computed."""
        self.stopping.set()
        self.events.put(Stopped())

    def check_stop(self) -> None:
        if self.stopping.is_set():
            raise Stop


class DrawWorker:
    """Pipeline, the thread that draws with it, and the jobs that wait for it."""

    def __init__(self, pipe: Any, waiting: int, per_address: int) -> None:
        self.pipe, self.waiting, self.per_address = pipe, waiting, per_address
        self.jobs: dict[str, Job] = {}  # by session, in the order in which they came
        self.lock = threading.Lock()
        self.closed = False
        self.warm: set[Size] = set()
        self.pending: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        # A daemon: a step can take a minute, and the end of the process must not wait for it.
        self.thread = threading.Thread(target=self.work, name="todome-draw", daemon=True)
        pipe.set_progress_bar_config(disable=True)
        self.thread.start()

    def draw(self, visitor: Visitor, settings: Settings, save: Save, dense: Drawing | None = None) -> Iterator[Event]:
        """Events of a run, up to its end. Closing the iterator stops the run.

        Args:
            visitor: Who can have one run at a time in each session.
            settings: Settings of the reduced picture, or of the dense one where that is all.
            save: Called with the pictures and a check to make at its end, in the thread that draws, so that it takes no
                time from the next run.
            dense: The dense picture of these settings, where it is known.
        """
        if settings.size is not None:
            check_size(self.pipe, settings.size)
        job = Job(visitor, settings, dense, save)
        self.add(job)
        try:
            event = None
            while not isinstance(event, END):
                event = self.next_event(job)
                yield event
        finally:
            job.stop()
            with self.lock:
                self.jobs.pop(visitor.session, None)

    def add(self, job: Job) -> None:
        with self.lock:
            addresses = [other.visitor.address for other in self.jobs.values()]
            if self.closed:
                raise ValueError("The page is being closed.")
            if job.visitor.session in self.jobs:
                raise ValueError("A run of yours is not finished yet. Wait for it, or stop it.")
            if addresses.count(job.visitor.address) >= self.per_address:
                text = f"{self.per_address} runs from your address are not finished yet. Wait for one of them."
                raise ValueError(text)
            if len(self.jobs) > self.waiting:
                raise ValueError(f"The queue is full ({self.waiting} runs). Try again in a minute.")
            self.jobs[job.visitor.session] = job
            self.pending.put(job)

    def next_event(self, job: Job) -> Event:
        """The newest event, or the one that ends the run: nobody needs to see steps that are over."""
        try:
            event = job.events.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return Waiting(self.runs_before(job))
        while not isinstance(event, END) and not job.events.empty():
            older, event = event, job.events.get()
            if isinstance(older, Progress) and isinstance(event, Progress) and older.dense == event.dense:
                event = event._replace(preview=event.preview or older.preview)
        return event

    def runs_before(self, job: Job) -> int:
        with self.lock:
            return list(self.jobs.values()).index(job)

    def stop(self, session: str) -> None:
        """Stops the run of a session, if there is one."""
        with self.lock:
            job = self.jobs.get(session)
        if job is not None:
            job.stop()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Stops all runs. A step that takes longer than this goes on in its thread, and nothing comes of it."""
        with self.lock:
            self.closed, jobs = True, list(self.jobs.values())
        for job in jobs:
            job.stop()
        self.pending.put(None)
        self.thread.join(seconds)

    def is_drawing(self) -> bool:
        return self.thread.is_alive()

    def work(self) -> None:
        while (job := self.pending.get()) is not None:
            job.events.put(self.run(job))

    def run(self, job: Job) -> Event:
        """Draws what a job asks for. Returns the event that ends it."""
        try:
            return self.draw_pictures(job)
        except Stop:
            return Stopped()
        except USER_ERRORS as error:
            return Failed(str(error))
        except Exception:
            if not job.stopping.is_set():  # its folder may be gone by then
                log.exception("A run failed: %s", job.settings)
            return Failed(UNKNOWN)

    def draw_pictures(self, job: Job) -> Finished:
        alone = replace(job.settings, reduction=None)
        self.warm_up(alone, job)
        dense = job.dense or self.draw_picture(alone, job)
        reduced = None if job.settings.reduction is None else self.draw_picture(job.settings, job)
        return Finished(job.save(dense, reduced, job.check_stop))

    def warm_up(self, settings: Settings, job: Job) -> None:
        """Draws one step at a new size: the first call at a size is slow, whatever it does."""
        job.check_stop()
        if settings.size is not None and settings.size not in self.warm:
            job.events.put(Progress(job.dense is None, 0, settings.steps or 1))
            make_picture(replace(settings, steps=1, scheduler=None), self.pipe, lambda _: job.check_stop())
            self.warm.add(settings.size)

    def draw_picture(self, settings: Settings, job: Job) -> Drawing:
        device = self.pipe.device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        generated = make_picture(settings, self.pipe, self.step_reporter(settings, job))
        job.check_stop()
        return Drawing(generated, torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else None)

    def step_reporter(self, settings: Settings, job: Job) -> Callable[[Step], None]:
        """Function to call after each step: it puts an event, or stops the run."""
        previews, dense = Previews(self.pipe), settings.reduction is None
        job.events.put(Progress(dense, 0, settings.steps or 1))

        def report(step: Step) -> None:
            job.check_stop()
            job.events.put(Progress(dense, step.done, step.steps, previews.of(step)))

        return report
