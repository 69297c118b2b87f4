"""The control: fewer dense steps, which make a run faster too and need no plan."""

import statistics
from typing import NamedTuple

from .drawings import Drawings, decibels
from .records import Records


class Control(NamedTuple):
    """A dense run of fewer steps, about as fast as a plan, on the same held-out prompts."""

    steps: int
    psnr: float

    def verdict(self, psnr: float) -> str:
        """Which of the two is closer to the dense run of all steps, and by how much."""
        difference = abs(psnr - self.psnr)
        if self.psnr > psnr:
            return f"{self.steps} dense steps are closer at that speed, by {difference:.1f} dB: take these instead."
        return f"{self.steps} dense steps are as fast, and {difference:.1f} dB further off."


def draw_control(drawings: Drawings, records: Records, speedup: float) -> Control | None:
    """As many dense steps as take the time of a plan; None where that is all of them."""
    whole = drawings.maker.plan.steps
    steps = max(1, round(whole / speedup))
    if steps >= whole:
        return None
    errors = records.measure({"picture errors, dense steps": steps}, lambda: drawings.picture_errors(None, steps))
    return Control(steps, round(decibels(statistics.fmean(errors)), 2))
