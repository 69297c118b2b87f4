"""Queue of drawing jobs, worked off one after the other by the one thread that uses the pipeline.

A job reports through a queue of events. However it ends (last step, error, stopped by its visitor, a closed tab), the
pipeline is left as it was and the next job is drawn.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import torch

from ..generate import Generated, Settings, Step, make_picture
from ..pipelines import Size, check_size
from ..timing import now
from .estimates import Estimates
from .form import PLAIN, Extras, Order
from .models import Models
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
    name: str = ""  # by which the visitor is known again after a reload


class Waiting(NamedTuple):
    """Event: this many runs come first."""

    before: int


class Opening(NamedTuple):
    """Event: a model is being opened."""

    model: str


class Progress(NamedTuple):
    """Event: this many steps of a picture are done. The preview is a data URI, or empty where there is no new one."""

    at: int  # which picture of the order
    done: int
    steps: int
    preview: str = ""


class Measured(NamedTuple):
    """Event: the state of a measurement, as far as it is."""

    state: Any


class Finished(NamedTuple):
    """Event: the run is finished, and this is what came of it: of pictures, what `save` made of them."""

    result: Any


class Failed(NamedTuple):
    """Event: the run ended with an error, which the sentence explains."""

    sentence: str


class Stopped(NamedTuple):
    """Event: the run was stopped by its visitor, or because the page is closed."""


Event: TypeAlias = Waiting | Opening | Progress | Measured | Finished | Failed | Stopped
END = (Finished, Failed, Stopped)
Check: TypeAlias = Callable[[], None]  # raises Stop where the run was stopped
Save: TypeAlias = Callable[[list[Drawing], Check], Any]  # given the pictures in the order in which they were asked for


class Stop(Exception):
    """Raised in a step to end the pipeline's call, so that whatever was put on the pipeline for it is removed."""


@dataclass(eq=False)
class Job:
    """One run of a visitor."""

    visitor: Visitor
    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue, init=False)
    stopping: threading.Event = field(default_factory=threading.Event, init=False)

    def stop(self) -> None:
        """Ends the run for its visitor at once, and for the pipeline after the step that is being computed."""
        self.stopping.set()
        self.events.put(Stopped())

    def check_stop(self) -> None:
        if self.stopping.is_set():
            raise Stop


@dataclass(eq=False)
class DrawJob(Job):
    """Pictures to draw, and those that are known already, by their place."""

    order: Order
    known: Mapping[int, Drawing]
    save: Save


@dataclass(eq=False)
class OtherJob(Job):
    """Something else to do with a model, in the thread that draws. What it returns ends the run."""

    do: Callable[[Models, Job], Any]


class DrawWorker:
    """Models, the thread that draws with them, and the jobs that wait for it.

    Args:
        models: One of which is open.
        waiting: Jobs that may wait while another one is drawn.
        per_address: Jobs from one address that may wait or be drawn.
        first: Settings of which two steps are drawn at once, so that it is known how long a picture takes.
    """

    def __init__(self, models: Models, waiting: int, per_address: int, first: Settings | None = None) -> None:
        self.models, self.waiting, self.per_address, self.first = models, waiting, per_address, first
        self.estimates = Estimates()
        self.jobs: dict[str, Job] = {}  # by session, in the order in which they came
        self.lock = threading.Lock()
        self.closed = False
        self.warm: set[tuple[str, Size | None]] = set()
        self.pending: queue.SimpleQueue[DrawJob | OtherJob | None] = queue.SimpleQueue()
        # A daemon: a step can take a minute, and the end of the process must not wait for it.
        self.thread = threading.Thread(target=self.work, name="todome-draw", daemon=True)
        self.thread.start()

    def draw(
        self, visitor: Visitor, order: Order, save: Save, known: Mapping[int, Drawing] | None = None
    ) -> Iterator[Event]:
        """Events of a run, up to its end. Closing the iterator stops the run.

        Args:
            visitor: Who can have one run at a time in each session.
            order: The pictures to draw.
            save: Called with the pictures and a check to make at its end, in the thread that draws, so that it takes no
                time from the next run.
            known: Pictures of the order that are known, by their place in it.
        """
        first = order.alone[0]
        if first.size is not None and self.models.is_open(first.model):
            check_size(self.models.pipe, first.size)
        yield from self.follow(DrawJob(visitor, order, known or {}, save))

    def follow(self, job: DrawJob | OtherJob) -> Iterator[Event]:
        """Events of a job, up to its end. Closing the iterator stops it."""
        self.add(job)
        try:
            event = None
            while not isinstance(event, END):
                event = self.next_event(job)
                yield event
        finally:
            job.stop()
            with self.lock:
                self.jobs.pop(job.visitor.session, None)

    def add(self, job: DrawJob | OtherJob) -> None:
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
            if isinstance(older, Progress) and isinstance(event, Progress) and older.at == event.at:
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
        self.time_first()
        while (job := self.pending.get()) is not None:
            job.events.put(self.run(job))

    def time_first(self) -> None:
        """Draws two steps of the first settings, unless a visitor is already waiting: their own run tells as much."""
        if self.first is None or self.jobs:
            return
        try:
            self.warm_up(self.first, PLAIN, self.check_needed)
        except Stop:
            pass
        except Exception:
            log.exception("The first steps failed: %s", self.first)

    def check_needed(self) -> None:
        if self.closed or self.jobs:
            raise Stop

    def run(self, job: DrawJob | OtherJob) -> Event:
        """Does what a job asks for. Returns the event that ends it."""
        try:
            return self.draw_pictures(job) if isinstance(job, DrawJob) else Finished(job.do(self.models, job))
        except Stop:
            return Stopped()
        except USER_ERRORS as error:
            return Failed(str(error))
        except Exception:
            if not job.stopping.is_set():  # its folder may be gone by then
                log.exception("A run failed: %s", job)
            return Failed(UNKNOWN)

    def draw_pictures(self, job: DrawJob) -> Finished:
        order, drawn = job.order, []
        first = order.alone[0]
        if not self.models.is_open(first.model):
            job.events.put(Opening(first.model))
            self.models.open(first.model)
            check_size(self.models.pipe, first.size or (0, 0))
        job.events.put(Progress(0, 0, first.steps or 1))
        self.warm_up(first, order.extras, job.check_stop)
        for at, settings in enumerate(order.pictures()):
            drawn.append(job.known.get(at) or self.draw_picture(at, settings, job))
        return Finished(job.save(drawn, job.check_stop))

    def warm_up(self, settings: Settings, extras: Extras, check: Check) -> None:
        """Draws two steps at a new size: the first one is slow, whatever it does, and the second tells how long."""
        check()
        if (settings.model, settings.size) in self.warm:
            return
        moments: list[float] = []

        def note(_: Step) -> None:
            check()
            moments.append(now(pipe.device))

        pipe = self.models.pipeline(settings, extras._replace(start=None))
        make_picture(replace(settings, steps=2, scheduler=None), pipe, note)
        if len(moments) == 2:
            self.estimates.learn(settings, moments[1] - moments[0], 1)
        self.warm.add((settings.model, settings.size))

    def draw_picture(self, at: int, settings: Settings, job: DrawJob) -> Drawing:
        extras, size = job.order.extras, settings.size
        pipe, more, asked = self.models.pipeline(settings, extras), {}, settings
        if extras.start is not None and size is not None:
            more = {**extras.start.load(size), "strength": extras.strength}
            asked = replace(settings, size=size if extras.start.masked else None)  # image to image has the picture's
        if pipe.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(pipe.device)
        generated = make_picture(asked, pipe, self.step_reporter(at, settings, pipe, job), more)
        job.check_stop()
        if extras.start is None:  # those that start from a picture draw fewer steps than they are set to
            self.estimates.learn(settings, generated.seconds, settings.steps or 1)
        peak = torch.cuda.max_memory_allocated(pipe.device) / 1e9 if pipe.device.type == "cuda" else None
        return Drawing(generated, peak)

    def step_reporter(self, at: int, settings: Settings, pipe: Any, job: Job) -> Callable[[Step], None]:
        """Function to call after each step: it puts an event, or stops the run."""
        previews = Previews(pipe)
        job.events.put(Progress(at, 0, settings.steps or 1))

        def report(step: Step) -> None:
            job.check_stop()
            job.events.put(Progress(at, step.done, step.steps, previews.of(step)))

        return report
