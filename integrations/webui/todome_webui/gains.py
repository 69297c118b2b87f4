"""How much faster a step gets at a size, as it was measured: a guide before anything is drawn.

gains.json is made from the results of the benchmark, by benchmarks/gains.py.
"""

import html
import json
import math
from pathlib import Path

from todome import Plan
from todome.levers.downsample import AUTO_KEYS

from .settings import MERGING, SAME, Settings

GAINS = json.loads((Path(__file__).parent / "gains.json").read_text(encoding="utf-8"))
PIXELS = 8  # a side of a token at the finest level of SD 1.x


def expected_gain(width: int, height: int, settings: Settings, own: str = SAME) -> str:
    """A sentence about a picture of this size with these settings."""
    if settings.off(own):
        return "Off: pictures are drawn as they are."
    if settings.method == MERGING:
        return "Merging gains less than downsampling at every size that was measured."
    if settings.planned(own):
        return planned_gain(settings.plan)
    tokens = (width // PIXELS) * (height // PIXELS)
    if settings.factor_with(own) == "auto" and tokens <= AUTO_KEYS:
        return (
            f"At {width} x {height} the automatic factor changes nothing: choose a factor of 2 to reduce all the same."
        )
    measured = measured_size(width, height)
    rows = GAINS["speedups"][str(measured)]
    gains = ", ".join(f"{row['speedup']:.2f}x with {name}" for name, row in rows.items())
    factor = next(iter(rows.values()))["factor"]
    return (
        f"About {gains} at {measured} x {measured}: the time of a step with factor {factor} on an {GAINS['machine']}. "
        "Other cards gain more or less; <code>todome explain</code> measures yours."
    )


def planned_gain(file: str) -> str:
    """What was measured with a plan, or why there is none."""
    try:
        plan = Plan.load(file)
    except ValueError as error:
        return html.escape(str(error))
    found, where = {**plan.conditions, **plan.evidence}, ""
    if {"size", "device"} <= found.keys():
        where = f" Measured at {' x '.join(map(str, found['size']))} on {found['device']}."
    return html.escape(f"{plan}.{where}")


def measured_size(width: int, height: int) -> int:
    """The largest size that was measured and is not larger, else the smallest."""
    sizes = sorted(map(int, GAINS["speedups"]))
    return max((size for size in sizes if size <= math.sqrt(width * height)), default=sizes[0])
