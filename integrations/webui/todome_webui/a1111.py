"""AUTOMATIC1111: the model is one of CompVis or Stability, which todome knows."""

from collections.abc import Callable
from typing import Any

import todome
from todome.reductions import Reduction


class ReducedModel:
    """A model with todome's hooks on it, until `remove`."""

    def __init__(self, sd_model: Any, reduction: Reduction, tell: Callable[[str], None]) -> None:
        self.patch, self.tell = todome.apply(sd_model, reduction), tell

    def at(self, step: int, steps: int) -> None:
        self.patch.at(step, steps)

    def remove(self) -> None:
        self.patch.remove()
        for level in self.patch.levels:
            if level.grids:
                self.tell(self.patch.reduction.describe(level))
