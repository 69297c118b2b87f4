"""What one layer needs of each grid that it meets: made once, on the device it is needed on."""

from typing import Any

import torch

from ..reductions import Reduction
from .grid import Grid, Order
from .matching import Cells


class Tables:
    """The tables of one layer. `seen` says how many tokens are left of each grid it has met."""

    def __init__(self, reduction: Reduction, setting: Any, seed: int) -> None:
        self.reduction, self.setting, self.seed = reduction, setting, seed
        self.made: dict[Grid, Order | Cells | None] = {}  # None where nothing of a grid is reduced
        self.seen: dict[Grid, int] = {}

    def prepare(self, grid: Grid, device: torch.device) -> None:
        known = self.made.get(grid)
        if grid not in self.made or (known is not None and known.rows.device != device):
            left = self.reduction.kept_count(grid, self.setting)
            with torch.inference_mode(False):
                table = None if left == grid[0] * grid[1] else self.reduction.build_table(grid, self.setting, self.seed)
                self.made[grid] = None if table is None else table.to(device)
            self.seen[grid] = left

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"made": {}}  # made again from the seed
