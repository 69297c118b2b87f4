"""Reuse over steps: the settings of what is extrapolated instead of computed."""

from dataclasses import dataclass

from ..errors import invalid_value
from .checks import check_flags, checked_fraction, is_count, is_number
from .lever import Lever

KEEP, EVERY, WARMUP, STAGES = 45.0, 2, 0.3, 1  # what is not given
LOWEST, HIGHEST = 20.0, 80.0  # dB that a schedule can be found for


@dataclass(frozen=True)
class Reuse(Lever):
    """Reuse over steps: after a warm-up, most steps compute a part of the model and extrapolate the rest.

    Guidance (LinearAG, arXiv 2312.12487), the deep stages of a UNet (DeepCache, arXiv 2312.00858) and the output change
    along nearly straight lines, so they follow from the last two steps that were computed in full.

    Args: Important
        keep: How close to the dense picture, in dB (PSNR), as expected for the mean of many pictures: higher is closer
            and slower. 45 is the default. At the start of each run the cheapest schedule that keeps it is found.

    Args: By hand, instead of keep
        every: After the warm-up one step in so many is full. 1: bit for bit dense.
        warmup: The share of a full schedule's steps that are all full, in which the composition settles.
        stages: How many stages of a UNet, from the finest, partial steps compute. 0: none, the output itself is
            extrapolated, as it always is in transformers.

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
        by_hand = {name: getattr(self, name) for name in ("every", "warmup", "stages")}
        given = [name for name, value in by_hand.items() if value is not None]
        if self.keep is not None and given:
            remedy = f"Leave {' and '.join(given)} out, or keep"
            raise invalid_value("keep", self.keep, f"None beside {' and '.join(given)}", remedy)
        check_flags(self, "guidance")
        self._check_by_hand() if given else self._check_keep()

    def _check_keep(self) -> None:
        keep = KEEP if self.keep is None else self.keep
        if not is_number(keep) or not LOWEST <= keep <= HIGHEST:
            allowed = f"dB from {LOWEST:g} to {HIGHEST:g}"
            raise invalid_value("keep", keep, allowed, "45 is the default, 40 is faster, 50 closer")
        object.__setattr__(self, "keep", float(keep))

    def _check_by_hand(self) -> None:
        every, warmup, stages = (
            default if value is None else value
            for value, default in zip((self.every, self.warmup, self.stages), (EVERY, WARMUP, STAGES), strict=True)
        )
        if not is_count(every):
            raise invalid_value("every", every, "a whole number of at least 1", "Use every=2; every=1 is dense")
        if not is_count(stages, least=0):
            raise invalid_value("stages", stages, "a whole number of at least 0", "Use stages=1")
        warmup = checked_fraction("warmup", warmup, "warmup=0.3 is a third of the steps")
        for name, value in (("every", int(every)), ("warmup", float(warmup)), ("stages", int(stages))):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        names = ("keep",) if self.keep is not None else ("every", "warmup", "stages")
        shown = [f"{name}={getattr(self, name):g}" for name in names] + ["guidance=False"] * (not self.guidance)
        return f"Reuse({', '.join(shown)})"
