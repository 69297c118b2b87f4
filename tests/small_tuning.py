"""A small tuning, which the tests of tuning begin with."""

from typing import Any

from attention_clock import AttentionClock

from todome.tools.timing import Timing
from todome.tools.tuning.options import Options

PROMPTS = ["a rose", "a tulip", "a daisy", "a field"]
SMALL: dict[str, Any] = {"prompts": PROMPTS, "height": 32, "width": 32, "steps": 4, "calibration": 1, "held_out": 2}


def counting(pipe: Any, pairs_per_ms: float = 1e5, **options: Any) -> Options:
    """Options with which attention is most of the time, by a clock that counts instead of measuring."""
    clock = AttentionClock(pipe.unet, pairs_per_ms)
    return Options(timing=Timing(seconds=0, rounds=1, clock=clock), **options)  # rounds are all the same
