"""Reuse over steps: the settings of what is extrapolated instead of computed."""

from dataclasses import dataclass
from typing import Any

from ..errors import invalid_value
from .checks import check_flags, checked_fraction, is_count, is_number
from .lever import Lever

KEEP = 45.0  # dB, where nothing is given
LOWEST, HIGHEST = 20.0, 80.0  # dB that a schedule can be found for
BY_HAND = {"every": 2, "warmup": 0.3, "stages": 1}  # where one of them is given and the others are not
MOST = 1000  # no run has more steps


@dataclass(frozen=True)
class Reuse(Lever):
    """Reuse over steps: after a warm-up, most steps compute a part of the model and extrapolate the rest.

    Guidance (LinearAG, arXiv 2312.12487), the deep stages of a UNet (DeepCache, arXiv 2312.00858) and the output change
    along nearly straight lines, so they follow from the last two steps that were computed in full.

    Args: Important
        keep: How close to the dense picture, in dB (PSNR), as expected for the mean of many pictures: higher is closer
            and slower. 45 is the default. At the start of each run the cheapest schedule that keeps it is found.

    Args: By hand, instead of keep
        every: After the warm-up one step in so many is full. 1: bit for bit dense. 2 is what is not given.
        warmup: The share of a full schedule's steps that are all full, in which the composition settles. 0.3 is what
            is not given.
        stages: How many stages of a UNet, from the finest, partial steps compute. 1 is what is not given. 0: none, the
            output itself is extrapolated, as it always is in transformers. More than the model has: all of them, and
            guidance alone is extrapolated.

    Args: For both
        guidance: Whether partial steps may compute the conditional half of guidance alone.
    """

    family = "steps"
    keep: float | None = None
    every: int | None = None
    warmup: float | None = None
    stages: int | None = None
    guidance: bool = True

    def __post_init__(self) -> None:
        given = " and ".join(name for name in BY_HAND if getattr(self, name) is not None)
        if self.keep is not None and given:
            raise invalid_value("keep", self.keep, f"None beside {given}", f"Leave {given} out, or keep")
        check_flags(self, "guidance")
        for name, value in (self._checked_by_hand() if given else {"keep": self._checked_keep()}).items():
            object.__setattr__(self, name, value)

    def _checked_keep(self) -> float:
        keep = KEEP if self.keep is None else self.keep
        if not is_number(keep) or not LOWEST <= keep <= HIGHEST:
            allowed = f"dB from {LOWEST:g} to {HIGHEST:g}"
            raise invalid_value("keep", keep, allowed, "45 is the default, 40 is faster, 50 closer")
        return float(keep)

    def _checked_by_hand(self) -> dict[str, Any]:
        every, warmup, stages = (
            default if getattr(self, name) is None else getattr(self, name) for name, default in BY_HAND.items()
        )
        return {
            "every": checked_count("every", every, 1, "Use every=2; every=1 is dense"),
            "warmup": float(checked_fraction("warmup", warmup, "warmup=0.3 is a third of the steps")),
            "stages": checked_count("stages", stages, 0, "Use stages=1"),
        }

    def __repr__(self) -> str:
        names = ("keep",) if self.keep is not None else BY_HAND
        shown = [f"{name}={repr(getattr(self, name)).removesuffix('.0')}" for name in names]
        return f"Reuse({', '.join(shown + ['guidance=False'] * (not self.guidance))})"


def checked_count(field: str, value: Any, least: int, remedy: str) -> int:
    if not is_count(value, least) or value > MOST:
        raise invalid_value(field, value, f"a whole number from {least} to {MOST}", remedy)
    return int(value)
