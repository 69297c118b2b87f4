"""How far a tuning goes: what is left alone unless one tinkers with it."""

from dataclasses import dataclass

from ..timing import Timing
from .layer_times import TIMING


@dataclass(frozen=True)
class Options:
    """What a layer must save to be considered, how many plans are drawn, how long is timed."""

    worth: float = 0.005  # of a step's time
    rounds: int = 7  # of drawing a plan and choosing again
    timing: Timing = TIMING
