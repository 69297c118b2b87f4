"""Lines through past values: pure functions of tensors, along the noise level of a run.

A quantity that is computed in some steps only is extrapolated in the others from its last two values: order 1 of
TaylorSeer (arXiv 2503.06923), but along sigma, which is the same rule for any schedule and number of steps.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Line(NamedTuple):
    """The last two values of a quantity, and the noise levels at which it had them."""

    sigma: float
    value: Tensor
    before: tuple[float, Tensor] | None = None

    def moved(self, sigma: float, value: Tensor) -> "Line":
        """The line after one more value. A second value at the same noise level replaces the first."""
        return Line(sigma, value, self.before if sigma == self.sigma else (self.sigma, self.value))

    @property
    def is_straight(self) -> bool:
        """Whether there are two values, so that it has a slope."""
        return self.before is not None

    def at(self, sigma: float) -> Tensor:
        """The value at another noise level, formed in fp32, in the type of the values; the only one there is."""
        if self.before is None:
            return self.value
        return torch.lerp(self.before[1].float(), self.value.float(), self.weight(sigma)).to(self.value.dtype)

    def weight(self, sigma: float) -> float:
        """How far on the way from the value before to the last one another noise level is; beyond 1 it is ahead."""
        if self.before is None:
            return 1.0
        before = self.before[0]
        return (sigma - before) / (self.sigma - before)


def moved(line: Line | None, sigma: float, value: Tensor) -> Line:
    return Line(sigma, value) if line is None else line.moved(sigma, value)
