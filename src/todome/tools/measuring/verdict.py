"""Verdict on a faster picture, in words that anybody understands: how much faster, and whether one can see it.

The thresholds are here and nowhere else; the page, the report and the command say the same.
"""

from typing import NamedTuple

SAME = 100.0  # dB, of pictures that are equal: JSON has no infinity
NOTHING_REDUCED = "Nothing was reduced, so both pictures are the same"


class Grade(NamedTuple):
    """What a PSNR of at least this many dB means to somebody who looks: in a sentence, and in a table."""

    least: float
    words: str
    short: str


GRADES = (
    Grade(45, "no visible difference", "no visible difference"),
    Grade(35, "differences are hard to see", "hard to see"),
    Grade(28, "differences are visible side by side", "visible side by side"),
    Grade(float("-inf"), "but another picture", "another picture"),
)
NONE, HARD, VISIBLE = (f"{grade.least:g}" for grade in GRADES[:-1])
THRESHOLDS = (
    f"PSNR in dB: above {NONE} there is no visible difference, from {HARD} to {NONE} it is hard to see, "
    f"from {VISIBLE} to {HARD} it is visible side by side, below that it is another picture."
)


def grade_of(psnr: float) -> Grade:
    return next(grade for grade in GRADES if psnr >= grade.least)


def speed_in_words(speedup: float) -> str:
    """Such as "1.6x as fast"; what is within five in a hundred is not called a gain, nor a loss."""
    if speedup >= 1.05:
        return f"{speedup:.3g}x as fast" if speedup >= 10 else f"{speedup:.1f}x as fast"
    return "No faster" if speedup > 0.95 else f"Slower ({speedup:.2f}x as fast)"


def verdict(speedup: float, psnr: float, of: str = "") -> str:
    """Such as "1.6x as fast, no visible difference". Where nothing was reduced, a speed-up would be chance.

    Args:
        speedup: How many times as fast as full attention.
        psnr: In dB, to the picture with full attention.
        of: What it is about, to stand before it.
    """
    said = NOTHING_REDUCED if psnr >= SAME else f"{speed_in_words(speedup)}, {grade_of(psnr).words}"
    return f"{of}: {said[0].lower()}{said[1:]}" if of else said
