"""Which rows of a token grid are kept: pure tensor functions that know nothing of models or steps.

A grid of (h, w) tokens, or (t, h, w), is cut into cells of `factor` tokens a side. Each cell is seen through one of its
members at a time; the *phase index* says which one. Token downsampling (ToDo, arXiv 2402.13573) always keeps the first.
A factor of p / q keeps q members a side of cells with p a side: cells of uneven sizes would show the members of small
ones more often than others at every step, an error that no order averages out.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor
from torch.nn import functional as F

Grid: TypeAlias = tuple[int, ...]
Phase: TypeAlias = Literal["dither", "fixed", "random"]
MOST_KEPT = 5  # of a cell's side: steps of 1/2, 1/3, 1/4 and 1/5 are exact, and tables stay small


class Spans(NamedTuple):
    """One axis of a grid cut into pieces: where each begins and how long it is."""

    starts: Tensor
    lengths: Tensor


class Cell(NamedTuple):
    """Shape of a cell: `side` tokens a side, of which `kept` a side are kept at a time."""

    side: int
    kept: int


class RowTable(NamedTuple):
    """Rows a grid keeps, by phase index: column c keeps `rows[phase_index % sizes[c], c]`."""

    rows: Tensor  # (longest, kept)
    sizes: Tensor | None  # (1, kept); None where every column is as long as the longest
    each: tuple[Tensor, ...] = ()  # (kept,) each: the rows one by one, where a phase need not be looked up on a device

    def to(self, device: torch.device) -> "RowTable":
        """The table on a device, in half the memory: index_select takes 32 bits too."""
        sizes = None if self.sizes is None else self.sizes.to(device, torch.int32)
        rows = self.rows.to(device, torch.int32)
        return RowTable(rows, sizes, rows.unbind() if sizes is None else ())


def nearest_spans(length: int, factor: float) -> Spans:
    """Cuts an axis into int(length / factor) pieces that begin where ToDo's nearest sampling lands."""
    axis = torch.arange(length, dtype=torch.float32, device="cpu").view(1, 1, length)
    starts = F.interpolate(axis, size=int(length / factor), mode="nearest").flatten().long()
    return Spans(starts, torch.diff(starts, append=torch.tensor([length])))


def whole_spans(length: int, stride: int) -> Spans:
    """Cuts an axis into whole strides from its beginning; what is left over at the end is in no piece."""
    starts = torch.arange(length // stride, device="cpu") * stride
    return Spans(starts, torch.full_like(starts, stride))


def raster_table(axes: Sequence[Spans], grid: Grid) -> RowTable:
    """Every cell keeps its members in raster order, beginning with its corner."""
    corners = [t.flatten() for t in torch.meshgrid(*(axis.starts for axis in axes), indexing="ij")]  # (cells,) each
    lengths = [t.flatten() for t in torch.meshgrid(*(axis.lengths for axis in axes), indexing="ij")]
    sizes = torch.stack(lengths).prod(0)[None]  # (1, cells)
    member = torch.arange(int(sizes.max()), device="cpu")[:, None] % sizes  # (longest, cells)
    rows, stride = torch.zeros_like(member), 1
    for corner, length, extent in zip(reversed(corners), reversed(lengths), reversed(grid), strict=True):
        rows += (corner + member % length) * stride
        member, stride = member // length, stride * extent
    return RowTable(rows, None if bool((sizes == len(rows)).all()) else sizes)


def shuffled_table(table: RowTable, seed: int) -> RowTable:
    """Every cell keeps its members in an order of its own. This function alone decides what dithering looks like.

    Own orders are closer to the dense picture than one order for the whole grid, which can alias with its structure.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    draw = torch.rand(table.rows.shape, generator=generator, device="cpu")
    if table.sizes is not None:
        filler = torch.arange(len(draw), device="cpu")[:, None] >= table.sizes
        draw[filler] = 2.0  # short cells end before the longest, so their filler stays last
    return RowTable(table.rows.gather(0, draw.argsort(0)), table.sizes)


def several_at_once(table: RowTable, count: int) -> RowTable:
    """Every cell keeps the next `count` members of its order in each phase, and so each of them equally often."""
    if count == 1:
        return table
    longest, cells = table.rows.shape
    sizes = torch.full((1, cells), longest) if table.sizes is None else table.sizes
    index, place = torch.arange(longest).view(-1, 1, 1), torch.arange(count).view(1, -1, 1)
    members = (index * count + place) % sizes  # (longest, count, cells)
    rows = table.rows.gather(0, members.flatten(0, 1)).view(longest, count * cells)
    return RowTable(rows, None if table.sizes is None else table.sizes.repeat(1, count))


def downsampling_table(grid: Grid, factor: float, phase: Phase, seed: int) -> RowTable:
    """The rows of a grid that are kept in each phase, 1 in `factor` along each axis."""
    side, kept = (factor, 1) if phase == "fixed" else cell_of(grid, factor)
    table = raster_table([nearest_spans(length, side) for length in grid], grid)
    if phase == "fixed":
        return RowTable(table.rows[:1], None)
    return several_at_once(shuffled_table(table, seed), kept ** len(grid))


def cell_of(grid: Grid, factor: float) -> Cell:
    """The cell that comes closest to 1 key in `factor` a side and fits the grid, the smallest of equals."""
    cells = [Cell(max(round(kept * factor), kept + (factor > 1)), kept) for kept in range(1, MOST_KEPT + 1)]
    return min((c for c in cells if c.side <= min(grid)), key=lambda c: (abs(c.side / c.kept - factor), c.kept))


def kept_rows(table: RowTable, phase_index: Tensor | int) -> Tensor:
    """The rows kept in this phase, (kept,)."""
    if table.each and isinstance(phase_index, int):
        return table.each[phase_index % len(table.each)]
    if table.sizes is None:
        return row_of(table.rows, phase_index)
    return table.rows.gather(0, (phase_index % table.sizes).long()).squeeze(0)


def row_of(table: Tensor, phase_index: Tensor | int) -> Tensor:
    """The row of a table for this phase. A phase index that is a tensor of one element is never read by the host."""
    phase_index = phase_index % len(table)
    return table[phase_index] if isinstance(phase_index, int) else table.index_select(0, phase_index).squeeze(0)


def kept_count(grid: Grid, factor: float, phase: Phase) -> int:
    """How many rows of a grid are kept: with a whole factor the same for every choice of phase."""
    if phase == "fixed":
        return math.prod(int(length / factor) for length in grid)
    side, kept = cell_of(grid, factor)
    return math.prod(length // side * kept for length in grid)


def smallest_factor(grid: Grid, most: int) -> int:
    """The smallest whole factor that leaves at most `most` keys."""
    factor = 1
    while kept_count(grid, factor, "fixed") > most:
        factor += 1
    return factor


def leftover_rows(grid: Grid, stride: Grid) -> Tensor:
    """The rows of a grid that are in none of its whole strides: right of and below them."""
    outside = torch.ones(grid, dtype=torch.bool, device="cpu")
    outside[tuple(slice(length // step * step) for length, step in zip(grid, stride, strict=True))] = False
    return cast(Tensor, outside.flatten().nonzero()).flatten()


def tile_of(grid: Grid, tiles: int) -> Grid | None:
    """The grid of one of so many equal tiles; None where there are several ways to cut the grid, or none."""
    height, width = grid
    ways = [(rows, tiles // rows) for rows in range(1, tiles + 1) if tiles % rows == 0]
    cuts = [(height // r, width // c) for r, c in ways if height % r == 0 and width % c == 0]
    return cuts[0] if len(cuts) == 1 else None
