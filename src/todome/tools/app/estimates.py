"""Estimates of how long a picture takes on this machine: from the last ones like it, or from a step at another size."""

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from ...reductions import Reduction
from ..generate import Settings
from ..pipelines import Size

GROWTH = 1.25  # power of the pixels with which the time of a step grows: attention squares, the rest is even


class Kind(NamedTuple):
    """What the time of a step depends on."""

    model: str
    size: Size
    reduction: Reduction | None

    @classmethod
    def of(cls, settings: Settings) -> "Kind":
        return cls(settings.model, settings.size or (0, 0), settings.reduction)


class Estimates:
    """Seconds of a step, decoding included, for each kind of picture that was drawn of late."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.steps: dict[Kind, float] = {}  # the newest last

    def learn(self, settings: Settings, seconds: float, steps: int) -> None:
        kind = Kind.of(settings)
        with self.lock:
            self.steps.pop(kind, None)
            self.steps[kind] = seconds / max(1, steps)
            if len(self.steps) > 200:
                del self.steps[next(iter(self.steps))]

    def is_empty(self) -> bool:
        return not self.steps

    def seconds(self, settings: Settings) -> float | None:
        """Of a picture; None where nothing was drawn with this model yet."""
        wanted, steps = Kind.of(settings), settings.steps or 1
        with self.lock:
            known = dict(self.steps)
        if wanted in known:
            return known[wanted] * steps
        same = [kind for kind in known if kind[:2] == wanted[:2]]
        alike = same or [kind for kind in known if kind.model == wanted.model]
        if not alike:
            return None
        nearest = min(reversed(alike), key=lambda kind: abs(pixels(kind) - pixels(wanted)))
        return known[nearest] * steps * (pixels(wanted) / pixels(nearest)) ** GROWTH

    def total(self, pictures: Sequence[Settings]) -> float | None:
        found = [self.seconds(one) for one in pictures]
        return sum(one for one in found if one is not None) if found and None not in found else None


def pixels(kind: Kind) -> int:
    return max(1, kind.size[0] * kind.size[1])


class TimeLeft:
    """Seconds until a run is finished, from what its pictures were expected to take and from its steps so far."""

    def __init__(self, expected: Sequence[float | None]) -> None:
        self.expected = expected  # seconds of each picture, 0 where it is there already
        self.at, self.began, self.told, self.when = -1, 0.0, 0.0, 0.0

    def step(self, at: int, done: int, steps: int) -> None:
        """A step of a picture is done."""
        now = time.monotonic()
        if at != self.at:
            self.at, self.began = at, now
        own = self.expected[at]
        if done:
            own = (now - self.began) / done * steps
        rest = [own if later is None else later for later in self.expected[at + 1 :]]
        if own is None or None in rest:
            return
        self.told, self.when = own * (1 - done / max(1, steps)) + sum(filter(None, rest)), now

    def seconds(self) -> float | None:
        """From now on; None where nothing is known yet."""
        return max(0.0, self.told - (time.monotonic() - self.when)) if self.when else None


def in_words(seconds: float) -> str:
    """Such as "12 seconds" or "3 minutes": no more digits than an estimate has."""
    if seconds < 1.5:
        return "a second"
    if seconds < 100:
        digits = round(seconds) if seconds < 20 else 5 * round(seconds / 5)
        return f"{digits} seconds"
    minutes = round(seconds / 60)
    return f"{minutes} minutes"
