"""Hearing from a scheduler: two methods of one instance also tell the clocks, until they are forgotten.

Works for every scheduler of diffusers and for whatever has `set_timesteps`, `step` and `timesteps`. Nothing is read
from the device but, once or twice in a run, the timestep of schedulers that keep no index.
"""

import functools
from collections.abc import Callable
from typing import Any, Protocol

TAPPED = ("set_timesteps", "step")


class Listener(Protocol):
    """What a clock has to do with a scheduler."""

    def begin(self, timesteps: int) -> None: ...

    def stepped(self, positions: Callable[[], set[int]]) -> None: ...


class Tap:
    """A method of one scheduler that also tells the clocks; `__wrapped__` keeps the signature pipelines ask for."""

    def __init__(self, scheduler: Any, name: str) -> None:
        self.scheduler, self.name = scheduler, name
        self.replaced = vars(scheduler).get(name)
        self.clocks: list[Listener] = []
        functools.update_wrapper(self, getattr(scheduler, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.__wrapped__(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        for clock in self.clocks:
            if self.name == "set_timesteps":
                clock.begin(len(self.scheduler.timesteps))
            else:
                clock.stepped(lambda: positions(self.scheduler, args, kwargs))
        return result

    def restore(self) -> None:
        if self.replaced is None:
            delattr(self.scheduler, self.name)
        else:
            setattr(self.scheduler, self.name, self.replaced)


def listen(scheduler: Any, clock: Listener) -> None:
    for name in TAPPED:
        tap = vars(scheduler).get(name)
        if not isinstance(tap, Tap):
            tap = Tap(scheduler, name)
            setattr(scheduler, name, tap)
        tap.clocks.append(clock)


def forget(scheduler: Any, clock: Listener) -> None:
    for name in TAPPED:
        tap = vars(scheduler).get(name)
        if isinstance(tap, Tap):
            tap.clocks = [c for c in tap.clocks if c is not clock]
            if not tap.clocks:
                tap.restore()


def is_set_up(scheduler: Any) -> bool:
    """Whether a run is about to begin: step_index is None until its first step.

    DDIM and its like never tell. Heun's constructor sets it up for all training timesteps, which is no run.
    """
    trained = getattr(getattr(scheduler, "config", None), "num_train_timesteps", None)
    return getattr(scheduler, "step_index", 0) is None and scheduler.num_inference_steps != trained


def positions(scheduler: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[int]:
    """Where among its timesteps the scheduler may just have stepped from. PNDM's repeat, so there may be two."""
    index = getattr(scheduler, "step_index", None)
    if index is not None:
        return {index - 1}
    timestep = float(args[1] if len(args) > 1 else kwargs["timestep"])
    return {i for i, known in enumerate(scheduler.timesteps.tolist()) if known == timestep}
