"""What the sequence of one attention layer is made of: grids of image tokens, and tokens that are always kept.

Every UNet has one grid and nothing else, `((64, 64),)`. Text in front of it is a number, `(512, (64, 64))`; an edited
picture beside its source is two grids.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import torch

from .grid import Grid, RowTable

Layout: TypeAlias = tuple[int | Grid, ...]


def token_count(layout: Layout) -> int:
    return sum(part if isinstance(part, int) else math.prod(part) for part in layout)


def grids_in(layout: Layout) -> list[Grid]:
    return [part for part in layout if not isinstance(part, int)]


def layout_table(layout: Layout, table_of: Callable[[Grid], RowTable]) -> RowTable:
    """The table of a sequence: all rows of what is always kept, and those that each grid keeps."""
    parts, offset = [], 0
    for part in layout:
        table = all_rows(part) if isinstance(part, int) else table_of(part)
        parts.append(RowTable(table.rows + offset, table.sizes))
        offset += token_count((part,))
    return parts[0] if len(parts) == 1 else joined(parts)


def all_rows(count: int) -> RowTable:
    return RowTable(torch.arange(count, device="cpu")[None], None)


def joined(tables: list[RowTable]) -> RowTable:
    """Tables side by side. Shorter ones repeat their rows up to the longest."""
    longest = max(len(table.rows) for table in tables)
    index = torch.arange(longest, device="cpu")
    rows = torch.cat([table.rows[index % len(table.rows)] for table in tables], 1)
    sizes = torch.cat([column_sizes(table) for table in tables], 1)  # (1, kept)
    repeats = all(longest % len(table.rows) == 0 and table.sizes is None for table in tables)
    return RowTable(rows, None if repeats else sizes)


def column_sizes(table: RowTable) -> torch.Tensor:
    return torch.full((1, table.rows.shape[1]), len(table.rows)) if table.sizes is None else table.sizes


def tile_of(grid: Grid, tiles: int) -> Grid | None:
    """The grid of one of so many equal tiles; None where there are several ways to cut the grid, or none."""
    height, width = grid
    ways = [(rows, tiles // rows) for rows in range(1, tiles + 1) if tiles % rows == 0]
    cuts = [(height // r, width // c) for r, c in ways if height % r == 0 and width % c == 0]
    return cuts[0] if len(cuts) == 1 else None
