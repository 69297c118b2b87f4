"""A small tuning, which the tests of tuning begin with."""

from typing import Any

import pytest
from attention_clock import AttentionClock
from zoo import small_unet, talking, tiny_pipeline

PROMPTS = ["a rose", "a tulip", "a daisy", "a field"]
SMALL: dict[str, Any] = {"prompts": PROMPTS, "height": 32, "width": 32, "steps": 4, "calibration": 1, "held_out": 2}
TIMED = "todome.tools.measuring.attention_costs.timed"


def counting(patch: pytest.MonkeyPatch, pairs_per_ms: float = 1e5) -> Any:
    """A pipeline in which attention is most of the time, by a clock that counts instead of measuring."""
    pipe = talking(tiny_pipeline(unet=small_unet()))
    patch.setattr(TIMED, AttentionClock(pipe.unet, pairs_per_ms).timed)
    patch.setattr("todome.tools.tuning.layer_times.ROUNDS", 1)  # which are all the same
    return pipe
