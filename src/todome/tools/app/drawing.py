"""Drawing of a run in a thread of its own, one at a time: the page shows its events, and can stop it in mid-step.

However a run ends (last step, error, stopped, a closed tab), the pipeline is left as it was and the next one is drawn.
"""

import inspect
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..generate import Generated, Settings, Step, make_picture
from ..pipelines import check_size
from ..quiet import quiet_loading
from .form import Order
from .previews import Previews

log = logging.getLogger("todome.app")

USER_ERRORS = (ImportError, MemoryError, ValueError)  # their messages are for the page; others are for the log
UNKNOWN = "Something went wrong on the server, and its log says what. Nothing is lost: draw again, or other settings."


class Progress(NamedTuple):
    """Event: this many steps of a picture are done. The preview is a data URI, or empty where there is no new one."""

    drawn: Settings
    at: int  # which picture of the run
    pictures: int  # of the run
    done: int
    steps: int
    preview: str = ""


class Finished(NamedTuple):
    """Event: the run is finished, and this is what came of it."""

    result: Any


class Failed(NamedTuple):
    """Event: the run is over, and this sentence says why."""

    sentence: str


class Stopped(NamedTuple):
    """Event: the run was stopped."""


class Stop(Exception):
    """Raised in a step to end the pipeline's call, so that whatever was put on the pipeline for it is removed."""


@dataclass(eq=False)
class Job:
    """One run of a tab."""

    events: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue, init=False)
    stopping: threading.Event = field(default_factory=threading.Event, init=False)

    def stop(self) -> None:
        """Ends the run for its tab at once, and for the pipeline after the step that is being computed."""
        self.stopping.set()
        self.events.put(Stopped())

    def check_stop(self) -> None:
        if self.stopping.is_set():
            raise Stop


class Worker:
    """The pipeline, and the runs of all tabs that draw with it or wait for it."""

    def __init__(self, pipe: Any) -> None:
        self.pipe = pipe
        self.pipe.set_progress_bar_config(disable=True)
        self.drawing = threading.Lock()  # held until the last step of a run is over, also of one that was stopped
        self.jobs: dict[str, Job] = {}  # by session of the tab
        self.warm: set[Any] = set()  # sizes that were drawn

    def run(self, session: str, work: Callable[[Job], Any]) -> Iterator[Any]:
        """Events of a run, up to its end. Closing the iterator stops it. What `work` returns ends it."""
        self.stop(session)
        job = self.jobs[session] = Job()
        # A daemon: a step can take a minute, and the end of the process must not wait for it.
        threading.Thread(target=self.do, args=(job, work), name="todome-draw", daemon=True).start()
        try:
            event = None
            while not isinstance(event, (Finished, Failed, Stopped)):
                event = job.events.get()
                yield event
        finally:
            job.stop()
            if self.jobs.get(session) is job:
                del self.jobs[session]

    def stop(self, session: str) -> None:
        """Stops the run of a tab, if there is one."""
        job = self.jobs.get(session)
        if job is not None:
            job.stop()

    def do(self, job: Job, work: Callable[[Job], Any]) -> None:
        with self.drawing:
            job.events.put(self.ended(job, work))

    def ended(self, job: Job, work: Callable[[Job], Any]) -> Any:
        """Does what a run is for. Returns the event that ends it."""
        try:
            job.check_stop()
            return Finished(work(job))
        except Stop:
            return Stopped()
        except USER_ERRORS as error:
            return Failed(str(error))
        except Exception:
            if not job.stopping.is_set():  # its folder may be gone by then
                log.exception("A run failed.")
            return Failed(UNKNOWN)

    def draw(self, order: Order, known: Mapping[int, Generated], job: Job) -> list[Generated]:
        """The pictures of an order. Those that are known already, by their place in it, are not drawn again."""
        first, number = order.alone[0], len(order.pictures())
        check_size(self.pipe, first.size or (0, 0))
        job.events.put(Progress(first, 0, number, 0, first.steps or 1))
        self.warm_up(first, job)
        return [known.get(at) or self.draw_picture(at, order, job) for at in range(number)]

    def warm_up(self, settings: Settings, job: Job) -> None:
        """Draws two steps at a new size: the first is slow, whatever it does, and would be held against a method."""
        if settings.size not in self.warm:
            make_picture(replace(settings, steps=2, scheduler=None), self.pipe, lambda _: job.check_stop())
            self.warm.add(settings.size)

    def draw_picture(self, at: int, order: Order, job: Job) -> Generated:
        pipe, more, start = self.pipe, {}, order.start
        pictures = order.pictures()
        settings = asked = pictures[at]
        if start is not None and settings.size is not None:
            pipe = starting_pipeline(pipe, "InpaintPipeline" if start.masked else "Img2ImgPipeline")
            more = {**start.load(settings.size), "strength": order.strength}
            asked = replace(settings, size=settings.size if start.masked else None)  # else that of the picture
        previews = Previews(pipe)

        def report(step: Step) -> None:
            job.check_stop()
            job.events.put(Progress(settings, at, len(pictures), step.done, step.steps, previews.of(step)))

        made = make_picture(asked, pipe, report, more)
        job.check_stop()
        return made


def starting_pipeline(pipe: Any, ending: str) -> Any:
    """Pipeline that starts from a picture, of the parts of another one, found by the ending of its name.

    diffusers' AutoPipeline imports all that there are, and its `from_pipe` refuses parts of unknown types.
    """
    with quiet_loading() as diffusers:
        kind = getattr(diffusers, type(pipe).__name__.removesuffix("Pipeline") + ending, None)
        if kind is None:
            raise ValueError("This model cannot start from a picture. Remove it, or choose another model.")
        known = {**dict(pipe.config), **pipe.components}
        made = kind(**{name: known[name] for name in inspect.signature(kind.__init__).parameters if name in known})
    made.set_progress_bar_config(disable=True)
    return made
