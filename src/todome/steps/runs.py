"""Whose run it is: the place in a run of each call of a model.

A server may draw with one model in many threads, a callback may draw a picture in the middle of another one, steps of
one run may be made by any thread of a pool. So neither the thread nor the order of calls says whose run a call belongs
to, where something better does. In this order:

    said by the host        `patch.at`, in the thread that said it
    by the schedule         the timestep is a view of the `timesteps` of a scheduler that is followed
                            or a copy of it: then it is the run that this thread's scheduler is in
    by falling timesteps    nobody drives the run: a lower timestep is the next step
"""

import copy
import threading
import weakref
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from .run import FallingTimestep, Position, Run, first_number
from .schedule import place_of_view
from .scheduler import follow, is_set_up, place_of_start, schedule_length, unfollow, watch_of


class Here(threading.local):
    """What only the thread tells: no timestep names what a host said, nor the run of a copied timestep."""

    def __init__(self) -> None:
        self.said: Run | None = None
        self.scheduler: weakref.ref[Any] | None = None  # that this thread moved last
        self.falling = FallingTimestep()


class Runs:
    """The runs that the models of one patch are called in."""

    def __init__(self) -> None:
        self.attached = True  # whether the patch is on a model
        self.on_begin: Callable[[Any], None] | None = None  # called with a pipeline when a run of it is set up
        self.on_move: Callable[[], None] | None = None  # called when a scheduler or a host moved a run
        self.restarts = False  # whether a loop over a given scheduler may be run again without set_timesteps
        self.forget_everyone()

    def forget_everyone(self) -> None:
        self.here = Here()
        # by identity: not every scheduler can be hashed
        self.schedulers: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.pipelines: WeakValueDictionary[int, Any] = WeakValueDictionary()

    # Whose run it is

    def of(self, timestep: Any) -> Position:
        """Where the run is that a call with this timestep belongs to; None: a timestep that must not be read."""
        self.follow_swapped_schedulers()
        found = self.said_by_host() or self.by_view(timestep) or self.by_scheduler(timestep)
        return found or Position(self.here.falling.advance(first_number(timestep)))

    def now(self) -> Position:
        """Where the run of this thread is, without a call."""
        scheduler = self.scheduler_here()
        driven = self.said_by_host() or (None if scheduler is None else run_of(scheduler).position)
        return driven or Position(self.here.falling.step)

    @property
    def is_driven(self) -> bool:
        """Whether a host or a scheduler says where the run of this thread is."""
        return self.said_by_host() is not None or self.scheduler_here() is not None

    def said_by_host(self) -> Position | None:
        said = self.here.said
        return said.position if said is not None and said.is_under_way else None

    def by_view(self, timestep: Any) -> Position | None:
        for scheduler in list(self.schedulers.values()):
            place = place_of_view(getattr(scheduler, "timesteps", None), timestep)
            if place is not None:
                run = run_of(scheduler)
                if not run.timesteps:  # it was set up before it was followed
                    run.begin(schedule_length(scheduler))
                self.here.scheduler = weakref.ref(scheduler)
                run.owns_copies = False
                return run.enter(place)
        return None

    def by_scheduler(self, timestep: Any) -> Position | None:
        """Of a copied timestep: the steps of the scheduler are counted; where it makes none, the timestep falls."""
        scheduler = self.scheduler_here(also_done=self.restarts)
        if scheduler is None:
            return None
        run = run_of(scheduler)
        if not run.is_under_way:
            run.begin(run.timesteps)
            run.owns_copies = len(self.under_way()) == 1
        if timestep is not None and not run.is_stepped:
            if run.first is None:
                run.first = place_of_start(scheduler, timestep)
            run.fall_to(first_number(timestep))
        is_surely_its = run.owns_copies and scheduler is self.own_scheduler()
        return run.position if is_surely_its else run.position._replace(run=None)

    def own_scheduler(self) -> Any | None:
        """The scheduler that this thread moved last."""
        return None if self.here.scheduler is None else self.here.scheduler()

    def scheduler_here(self, also_done: bool = False) -> Any | None:
        """The scheduler that this thread moved last; in a thread that moved none, the only one that has a run."""
        own = self.own_scheduler()
        if own is not None:
            return own if run_of(own).is_under_way or (also_done and run_of(own).timesteps) else None
        found = self.under_way()
        return found[0] if len(found) == 1 else None

    def under_way(self) -> list[Any]:
        """The schedulers that have a run."""
        return [scheduler for scheduler in list(self.schedulers.values()) if run_of(scheduler).is_under_way]

    # Who is followed

    def follow(self, scheduler: Any, joins: bool) -> None:
        """Moves with this scheduler from now on; it `joins` the run that the scheduler is set up for, if any."""
        known = id(scheduler) in self.schedulers
        run = follow(scheduler, self).run
        self.follows_copy(scheduler)
        if joins and not known and getattr(scheduler, "num_inference_steps", None):
            if not run.is_under_way:
                run.begin(schedule_length(scheduler))
            self.here.scheduler = weakref.ref(scheduler)

    def follow_pipeline(self, pipeline: Any) -> None:
        """Follows whatever schedulers the pipeline has at the time, also after one was swapped."""
        self.pipelines[id(pipeline)] = pipeline
        for scheduler in schedulers_of(pipeline):
            self.follow(scheduler, joins=is_set_up(scheduler))

    def follow_swapped_schedulers(self) -> None:
        for pipeline in list(self.pipelines.values()):
            for scheduler in schedulers_of(pipeline):
                if id(scheduler) not in self.schedulers:
                    self.here.said = None
                    self.follow(scheduler, joins=self.scheduler_here() is None)

    def pipelines_of(self, run: Run) -> list[Any]:
        """The pipelines that have the scheduler of a run."""
        known = list(self.pipelines.values())
        return [pipeline for pipeline in known if any(run_of(own) is run for own in schedulers_of(pipeline))]

    def follows_copy(self, scheduler: Any) -> None:
        self.schedulers[id(scheduler)] = scheduler

    def is_driven_by(self, scheduler: Any) -> None:
        """It was copied together with this scheduler, which tells where it is."""
        self.here.said = None
        self.follows_copy(scheduler)
        self.here.scheduler = weakref.ref(scheduler)

    def is_copied_by(self, memo: dict[int, Any]) -> bool:
        """Whether the copying that has this memo copies the patched model too."""
        return id(self) in memo or any(id(pipeline) in memo for pipeline in list(self.pipelines.values()))

    def inherit(self, other: "Runs") -> None:
        """Follows what the patch it replaces followed: pipelines that share a model go on driving it."""
        self.restarts, self.here.scheduler = other.restarts, other.here.scheduler
        self.here.said = copy.copy(other.here.said)
        for pipeline in list(other.pipelines.values()):
            self.follow_pipeline(pipeline)
        for scheduler in list(other.schedulers.values()):
            self.follow(scheduler, joins=False)

    def detach(self) -> None:
        """The patch is on no model any more: every scheduler is as it was."""
        self.attached = False
        for scheduler in list(self.schedulers.values()):
            unfollow(scheduler, self)
        self.forget_everyone()

    # Who moves

    def scheduler_moved(self, scheduler: Any, begun: bool) -> None:
        """A scheduler set a run up or finished a step, in this thread."""
        self.follows_copy(scheduler)  # one that was unpickled does not know of it
        if begun:
            self.here.said = None
            self.say_begun(scheduler)
        if self.here.said is not None:
            self.here.said.index += 1  # the host knows better which step it was
        else:
            self.moves_here(scheduler)
        self.say_moved()

    def moves_here(self, scheduler: Any) -> None:
        """This thread moves the run of a scheduler; maybe in the middle of another one, inside of it or in turn."""
        other = self.own_scheduler()
        if other is not None and other is not scheduler and run_of(other).is_under_way:
            run_of(scheduler).owns_copies = False
        self.here.scheduler = weakref.ref(scheduler)

    def say_begun(self, scheduler: Any) -> None:
        for pipeline in list(self.pipelines.values()):
            if self.on_begin is not None and any(own is scheduler for own in schedulers_of(pipeline)):
                self.on_begin(pipeline)

    def at(self, step: int, steps: int) -> None:
        """The host says where the run of this thread is, until it says so again."""
        self.here.said = Run(steps, step)
        self.say_moved()

    def say_moved(self) -> None:
        if self.on_move is not None:
            self.on_move()

    # Copies

    def __getstate__(self) -> dict[str, Any]:
        """A copy of the model is another model: it is where this one is, but nothing that drives this one drives it."""
        return {"position": self.now()[:2], "restarts": self.restarts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()
        self.attached, self.restarts = False, state["restarts"]  # attached: until a hook on a model is found to use it
        step, steps = state["position"]
        if steps is not None:
            self.here.said = Run(steps, step)


def can_be_followed(scheduler: Any) -> bool:
    return callable(getattr(scheduler, "set_timesteps", None)) and callable(getattr(scheduler, "step", None))


def schedulers_of(pipeline: Any) -> list[Any]:
    """The schedulers of a pipeline: most have one, some a second one to invert pictures."""
    return [part for name, part in vars(pipeline).items() if name.endswith("scheduler") and can_be_followed(part)]


def run_of(scheduler: Any) -> Run:
    watch = watch_of(scheduler)
    return Run() if watch is None else watch.run
