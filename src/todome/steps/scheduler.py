"""Following a scheduler: `set_timesteps` and `step` of one instance also move the run that it drives.

Works for every scheduler of diffusers and for whatever has `set_timesteps`, `step` and `timesteps`.

The run is kept in the scheduler's `__dict__`, beside its other state. So a copy of the scheduler drives a run of its
own, from where the original was, and pipelines that save and restore `scheduler.__dict__` (panorama, tiled upscaling)
save and restore the run as well.
"""

import copy
import functools
import weakref
from typing import TYPE_CHECKING, Any

from .run import Run, first_number
from .schedule import place_of_value, place_of_view

if TYPE_CHECKING:
    from .runs import Runs

WATCHED = ("set_timesteps", "step")


class Watch:
    """The run of one scheduler, and those that follow it."""

    def __init__(self) -> None:
        self.run = Run()
        self.followers: list[Runs] = []

    @property
    def attached(self) -> list["Runs"]:
        """Those whose patch is still on a model: what was saved before a removal may come back after it."""
        return [follower for follower in self.followers if follower.attached]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Watch":
        twin = memo[id(self)] = Watch()
        twin.run = copy.deepcopy(self.run)
        twin.followers = [copy.deepcopy(f, memo) if f.is_copied_by(memo) else f for f in self.attached]
        return twin


class WatchedMethod:
    """A method of one scheduler that also moves its run. `__wrapped__` keeps the signature that pipelines ask for."""

    def __init__(self, scheduler: Any, name: str, watch: Watch, replaced: Any) -> None:
        self.scheduler, self.name, self.watch, self.replaced = scheduler, name, watch, replaced
        # Looked up on the class: the instance may hold another WatchedMethod by that name.
        method = getattr(type(scheduler), name).__get__(scheduler) if replaced is None else replaced
        functools.update_wrapper(self, method)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.__wrapped__(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        followers = self.watch.attached
        if not followers:
            restore(self.scheduler)
            return result
        begun = self.name == "set_timesteps"
        if begun:
            self.watch.run.begin(schedule_length(self.scheduler))
        else:
            timestep = args[1] if len(args) > 1 else kwargs.get("timestep")
            self.watch.run.finish(place_of_step(self.scheduler, self.watch.run, timestep))
        for follower in followers:
            follower.scheduler_moved(self.scheduler, begun)
        return result

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.watch.run.scheduler = weakref.ref(self.scheduler)
        for follower in self.watch.followers:
            follower.is_driven_by(self.scheduler)

    def __deepcopy__(self, memo: dict[int, Any]) -> "WatchedMethod":
        """The method of the copied scheduler; where only `__dict__` is copied, of the same one in a later state."""
        scheduler = memo.get(id(self.scheduler), self.scheduler)
        watch = copy.deepcopy(self.watch, memo)
        watch.run.scheduler = weakref.ref(scheduler)
        if scheduler is not self.scheduler:
            for follower in watch.followers:
                follower.is_driven_by(scheduler)
        return WatchedMethod(scheduler, self.name, watch, copy.deepcopy(self.replaced, memo))


def watch_of(scheduler: Any) -> Watch | None:
    found = [method for method in map(vars(scheduler).get, WATCHED) if isinstance(method, WatchedMethod)]
    return found[0].watch if found else None


def follow(scheduler: Any, follower: "Runs") -> Watch:
    """Has the scheduler tell the follower, from now on, when its run moves."""
    watch = watch_of(scheduler) or Watch()
    watch.run.scheduler = weakref.ref(scheduler)
    for name in WATCHED:
        own = vars(scheduler).get(name)
        if not isinstance(own, WatchedMethod):
            setattr(scheduler, name, WatchedMethod(scheduler, name, watch, own))
    if not any(known is follower for known in watch.followers):
        watch.followers.append(follower)
    return watch


def unfollow(scheduler: Any, follower: "Runs") -> None:
    """Stops telling the follower. After the last one, the scheduler is as it was."""
    watch = watch_of(scheduler)
    if watch is not None:
        watch.followers = [known for known in watch.followers if known is not follower]
        if not watch.attached:
            restore(scheduler)


def restore(scheduler: Any) -> None:
    """Takes the watched methods off. What a user has put on top of one stays, and goes on calling it."""
    for name in WATCHED:
        method = vars(scheduler).get(name)
        if isinstance(method, WatchedMethod) and method.replaced is None:
            delattr(scheduler, name)
        elif isinstance(method, WatchedMethod):
            setattr(scheduler, name, method.replaced)


def is_set_up(scheduler: Any) -> bool:
    """Whether a run is about to begin: step_index is None until its first step.

    DDIM and its like never tell. Heun's constructor sets it up for all training timesteps, which is no run.
    """
    trained = getattr(getattr(scheduler, "config", None), "num_train_timesteps", None)
    steps = getattr(scheduler, "num_inference_steps", None)
    return steps is not None and steps != trained and getattr(scheduler, "step_index", 0) is None


def schedule_length(scheduler: Any) -> int:
    timesteps = getattr(scheduler, "timesteps", None)
    return 0 if timesteps is None else len(timesteps)


def place_of_start(scheduler: Any, timestep: Any) -> int | None:
    """The place of the first step of a run, as far as the scheduler or the timestep of its first call tells.

    Some pipelines of flows call their model with a thousandth of the timestep: the first 1.0 is no last step.
    """
    begin, schedule = getattr(scheduler, "begin_index", None), getattr(scheduler, "timesteps", None)
    if begin is not None:
        return begin
    value = first_number(timestep)
    values = () if value is None else (value, value * 1000)
    found = [place_of_value(schedule, one, 0, may_wait=True) for one in values]
    return min((place for place in found if place is not None), default=None)


def place_of_step(scheduler: Any, run: Run, timestep: Any) -> int:
    """The place in its schedule of the step that a scheduler has just made.

    A timestep that is no view of the schedule, and on a device, is read once in a run, by schedulers without an index.
    """
    schedule = getattr(scheduler, "timesteps", None)
    place = place_of_view(schedule, timestep)
    if place is None and getattr(scheduler, "step_index", None) is not None:
        return scheduler.step_index - 1
    if place is None:
        place = place_of_value(schedule, timestep, run.index, may_wait=run.first is None)
    return run.index if place is None else place
