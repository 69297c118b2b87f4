"""AUTOMATIC1111: the model is one of CompVis or Stability, which todome knows."""

from typing import Any

import todome
from todome.levers.lever import Level, TokenLever


class ReducedModel:
    """A model with todome's hooks on it, until `remove`."""

    def __init__(self, sd_model: Any, lever: TokenLever) -> None:
        self.patch = todome.apply(sd_model, lever)

    def at(self, step: int, steps: int) -> None:
        self.patch.at(step, steps)

    def remove(self) -> list[Level]:
        """Leaves the model as it was. Returns the levels that met a grid."""
        self.patch.remove()
        return [level for level in self.patch.levels if level.grids]
