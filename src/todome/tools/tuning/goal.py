"""What a user wants of a tuning: so close to dense, or so fast."""

from dataclasses import dataclass

from ...errors import invalid_value
from ...levers.checks import is_number


@dataclass(frozen=True)
class Goal:
    """The fastest plan with at least `keep` dB to dense, or the closest one that is `faster` times as fast."""

    keep: float | None = None
    faster: float | None = None

    def __post_init__(self) -> None:
        if (self.keep is None) == (self.faster is None):
            given = (self.keep, self.faster)
            raise invalid_value("(keep, faster)", given, "exactly one of the two", "Use keep=45, or faster=1.5")
        if self.keep is not None and not (is_number(self.keep) and 10 <= self.keep <= 90):
            remedy = "From 45 no difference is visible, from 35 it is hard to see"
            raise invalid_value("keep", self.keep, "a number of dB from 10 to 90", remedy)
        if self.faster is not None and not (is_number(self.faster) and 1 < self.faster <= 20):
            raise invalid_value("faster", self.faster, "a number above 1, up to 20", "1.5 is one and a half times")

    @property
    def error(self) -> float:
        """The mean squared error of pictures that is allowed."""
        assert self.keep is not None
        return 10 ** (-self.keep / 10)

    def __str__(self) -> str:
        return f"at least {self.keep:g} dB" if self.keep is not None else f"{self.faster:g}x as fast"
