"""Tracks the sampling step, and from it whether the reduction is on and which member of each cell is kept.

The step belongs to the run that is being made, and the run to the thread that makes it: a server may draw with one
model in many threads. A run is driven by a scheduler that is followed, by a host (`patch.at`), or, with neither, by the
timesteps that the model is called with.
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..reductions import Reduction
from .run import Run, TimestepRun, first_number
from .scheduler import follow, is_set_up, schedule_length, unfollow, watch_of


class Call(NamedTuple):
    """What is the same for all layers in one call of a model."""

    active: bool
    phase_index: int
    late: bool  # whether the settings of later hold


class Driver(threading.local):
    """Who says, in this thread, where the run is. The first that is not None counts."""

    def __init__(self) -> None:
        self.host_run: Run | None = None  # as `patch.at` said
        self.scheduler: weakref.ref[Any] | None = None
        self.timesteps = TimestepRun()


class Clock:
    """Tells the hooks of one patch, at each call of a model, whether they are on and which phase it is."""

    def __init__(self, reduction: Reduction) -> None:
        self.reduction = reduction
        self.attached = True  # whether the patch is on a model
        self.on_begin: Callable[[Any], None] | None = None  # called with a pipeline when a run of it is set up
        self.restarts = False  # whether a loop over a given scheduler may be run again without set_timesteps
        self.forget_everyone()

    def forget_everyone(self) -> None:
        self.driver = Driver()
        self.models: dict[int, weakref.ref[Any]] = {}
        self.schedulers: dict[int, weakref.ref[Any]] = {}
        self.pipelines: dict[int, weakref.ref[Any]] = {}
        self.set_up: weakref.ref[Any] | None = None  # a scheduler whose run is set up, before any thread called
        self.graph_inputs: weakref.WeakSet[Any] = weakref.WeakSet()  # what compiled and captured graphs read

    # Who drives

    def follow(self, scheduler: Any, joins: bool) -> None:
        """Moves with this scheduler from now on; it `joins` the run that the scheduler is set up for, if any."""
        known = id(scheduler) in self.schedulers
        watch = follow(scheduler, self)
        self.follows_copy(scheduler)
        if joins and not known and getattr(scheduler, "num_inference_steps", None):
            if not watch.run.is_under_way:
                watch.run.begin(schedule_length(scheduler))
            self.set_up = weakref.ref(scheduler)

    def follow_pipeline(self, pipeline: Any) -> None:
        """Follows whatever scheduler the pipeline has at the time, also after it was swapped."""
        remember(self.pipelines, pipeline)
        scheduler = getattr(pipeline, "scheduler", None)
        if can_be_followed(scheduler):
            self.follow(scheduler, joins=is_set_up(scheduler))

    def follow_swapped_schedulers(self) -> None:
        for pipeline in living(self.pipelines):
            scheduler = getattr(pipeline, "scheduler", None)
            if scheduler is not None and id(scheduler) not in self.schedulers and can_be_followed(scheduler):
                self.follow(scheduler, joins=True)
                self.driver.host_run, self.driver.scheduler, self.set_up = None, weakref.ref(scheduler), None

    def follows_copy(self, scheduler: Any) -> None:
        remember(self.schedulers, scheduler)

    def is_copied_by(self, memo: dict[int, Any]) -> bool:
        """Whether the copying that has this memo copies the patched model too."""
        return id(self) in memo or any(id(pipeline) in memo for pipeline in living(self.pipelines))

    def inherit(self, other: "Clock") -> None:
        """Follows what the patch it replaces followed: pipelines that share a model go on driving it."""
        self.restarts, self.set_up = other.restarts, other.set_up
        self.driver = other.driver
        for pipeline in living(other.pipelines):
            self.follow_pipeline(pipeline)
        for scheduler in living(other.schedulers):
            self.follow(scheduler, joins=False)

    def leave(self, model: Any) -> None:
        """No hook of the patch is on the model any more. After the last one, every scheduler is as it was."""
        self.models.pop(id(model), None)
        if self.models:
            return
        self.attached = False
        for scheduler in living(self.schedulers):
            unfollow(scheduler, self)
        self.forget_everyone()

    # Where the run is

    def scheduler_moved(self, scheduler: Any, begun: bool) -> None:
        """A scheduler set a run up or finished a step, in this thread."""
        self.follows_copy(scheduler)  # one that was unpickled does not know of it
        driver = self.driver
        if begun:
            driver.host_run = None
            self.say_begun(scheduler)
        if driver.host_run is not None:
            driver.host_run.step += 1  # the host knows better which step it was
        else:
            driver.scheduler, self.set_up = weakref.ref(scheduler), None
        self.show_graphs()

    def say_begun(self, scheduler: Any) -> None:
        for pipeline in living(self.pipelines):
            if self.on_begin is not None and getattr(pipeline, "scheduler", None) is scheduler:
                self.on_begin(pipeline)

    def at(self, step: int, steps: int) -> None:
        """The host says where the run of this thread is, until it says so again."""
        self.driver.host_run = Run(step, steps)
        self.show_graphs()

    @property
    def run(self) -> Run | None:
        """The run that is under way in this thread, where somebody drives it."""
        driver = self.driver
        run = driver.host_run or self.scheduler_run()
        return run if run is not None and run.is_under_way else None

    def scheduler_run(self) -> Run | None:
        driver = self.driver
        if driver.scheduler is None and self.set_up is not None:
            driver.scheduler, self.set_up = self.set_up, None
        scheduler = None if driver.scheduler is None else driver.scheduler()
        watch = None if scheduler is None else watch_of(scheduler)
        if watch is None:
            return None
        if self.restarts and watch.run.step == watch.run.steps:
            watch.run.begin(watch.run.timesteps)
        return watch.run

    def call_of(self, run: Run) -> Call:
        reduction, active, late = self.reduction, True, False
        if run.steps is not None and reduction.windowed:
            active, late = reduction.is_on(run.step, run.steps), reduction.is_late(run.step, run.steps)
        return Call(active, reduction.phase_index(run.step), late)

    def current_call(self) -> Call:
        """The call that would be made now, as far as it is known without looking at a timestep."""
        return self.call_of(self.run or Run(self.driver.timesteps.step))

    def next_call(self, timestep: Any) -> Call:
        """The call that is about to be made in this thread, with this timestep (None: it must not be read)."""
        self.follow_swapped_schedulers()
        run = self.run
        if run is None:
            self.refuse_window()
            value = first_number(timestep)
            run = Run(self.driver.timesteps.step if value is None else self.driver.timesteps.advance(value))
        return self.call_of(run)

    def refuse_window(self) -> None:
        if self.reduction.windowed:
            where = "where the model is called outside of a run that todome can follow"
            remedy = (
                "Apply to the pipeline that runs it, or use apply(..., scheduler=...) and call set_timesteps before "
                "each run, or call patch.at(step, steps) before each step"
            )
            raise self.reduction.window_error(where, remedy)

    def show_graphs(self) -> None:
        """Moves what graphs read: no hook runs when a captured graph is replayed."""
        call, driven = self.current_call(), self.run is not None
        for inputs in list(self.graph_inputs):
            inputs.move(call, driven)

    # Copies

    def __getstate__(self) -> dict[str, Any]:
        """A copy of the model is another model: it is where this one is, but nothing that drives this one drives it."""
        run = self.run
        position = Run(self.driver.timesteps.step) if run is None else Run(run.step, run.steps)
        return {"reduction": self.reduction, "position": position, "restarts": self.restarts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.reduction, self.restarts, self.on_begin = state["reduction"], state["restarts"], None
        self.attached = False  # until a hook on a model is found to use it
        self.forget_everyone()
        if state["position"].is_under_way:
            self.driver.host_run = state["position"]


def can_be_followed(scheduler: Any) -> bool:
    return callable(getattr(scheduler, "set_timesteps", None)) and callable(getattr(scheduler, "step", None))


def remember(known: dict[int, weakref.ref[Any]], thing: Any) -> None:
    """Adds a thing by its identity, for as long as it lives. Not every scheduler can be hashed."""
    key = id(thing)
    if key not in known:
        known[key] = weakref.ref(thing, lambda _: known.pop(key, None))


def living(known: dict[int, weakref.ref[Any]]) -> Iterator[Any]:
    return (thing for thing in (ref() for ref in list(known.values())) if thing is not None)
