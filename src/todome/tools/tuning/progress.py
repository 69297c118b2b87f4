"""Progress of a tuning in drawn steps, and the time that it may take."""

import math
import time
from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    from .search import Search


class Progress:
    """A bar over the steps that are to be drawn, with the time left, and a limit in minutes."""

    def __init__(self, minutes: float | None, shown: bool) -> None:
        self.began, self.limit = time.monotonic(), math.inf if minutes is None else 60 * minutes
        self.bar = tqdm(unit="step", disable=not shown, leave=False, total=0)
        self.drawn = 0
        self.part = self.began, 0  # when the part of it that is going on began, and what was drawn until then

    def expect(self, what: str, steps: int) -> None:
        self.part = time.monotonic(), self.drawn
        self.bar.set_description(what)
        self.bar.total = self.drawn + steps
        self.bar.refresh()

    def advance(self, steps: int) -> None:
        self.drawn += steps
        self.bar.update(steps)

    def show(self, search: "Search") -> None:
        """Called whenever something was measured, for those that show more than a bar."""

    def has_time_for(self, steps: int, seconds: float = 0.0) -> bool:
        """Whether so many further steps fit, at the pace of those that were drawn, and so many seconds beside them."""
        return time.monotonic() - self.began + (self.pace or 0.0) * steps + seconds <= self.limit

    @property
    def pace(self) -> float | None:
        """Seconds of a step in the part that is going on; none where none was drawn."""
        began, before = self.part
        return (time.monotonic() - began) / (self.drawn - before) if self.drawn > before else None

    def close(self) -> None:
        self.bar.close()
