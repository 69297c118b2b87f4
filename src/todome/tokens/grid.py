"""Which rows of a token grid are kept: pure tensor functions that know nothing of models or steps.

A grid of (h, w) tokens is cut into cells of `factor` x `factor`. Each cell is seen through one of its members at a
time; its *order* says which one in which turn. Token downsampling (ToDo, arXiv 2402.13573) always keeps the first. A
factor of p / q keeps q x q members at a time of cells of p x p: cells of uneven sizes would show the members of small
ones more often than others at every step, an error that no order averages out.
"""

from typing import Literal, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor
from torch.nn import functional as F

Grid: TypeAlias = tuple[int, int]
Phase: TypeAlias = Literal["dither", "fixed", "random"]
MOST_KEPT = 5  # of a cell's side: steps of 1/2, 1/3, 1/4 and 1/5 are exact, and tables stay small


class Spans(NamedTuple):
    """One axis of a grid cut into pieces: where each begins and how long it is."""

    starts: Tensor
    lengths: Tensor


class Cell(NamedTuple):
    """A square of side x side tokens that keeps kept x kept of them at a time."""

    side: int
    kept: int


class Order(NamedTuple):
    """The rows a grid keeps, turn by turn: cell c keeps `rows[turn % sizes[c], c]`."""

    rows: Tensor  # (longest, cells)
    sizes: Tensor | None  # (1, cells); None where every cell is as long as the longest

    def to(self, device: torch.device) -> "Order":
        return Order(self.rows.to(device), None if self.sizes is None else self.sizes.to(device))


def nearest_spans(length: int, factor: float) -> Spans:
    """Cuts an axis into int(length / factor) pieces that begin where ToDo's nearest sampling lands."""
    axis = torch.arange(length, dtype=torch.float32, device="cpu").view(1, 1, length)
    starts = F.interpolate(axis, size=int(length / factor), mode="nearest").flatten().long()
    return Spans(starts, torch.diff(starts, append=torch.tensor([length])))


def whole_spans(length: int, stride: int) -> Spans:
    """Cuts an axis into whole strides from its beginning; what is left over at the end is in no piece."""
    starts = torch.arange(length // stride, device="cpu") * stride
    return Spans(starts, torch.full_like(starts, stride))


def raster_order(rows: Spans, columns: Spans, width: int) -> Order:
    """Every cell keeps its members from left to right and top to bottom, beginning with its corner."""
    top, left = (t.flatten() for t in torch.meshgrid(rows.starts, columns.starts, indexing="ij"))  # (cells,)
    tall, wide = (t.flatten() for t in torch.meshgrid(rows.lengths, columns.lengths, indexing="ij"))
    sizes = (tall * wide)[None]  # (1, cells)
    member = torch.arange(int(sizes.max()), device="cpu")[:, None] % sizes  # (longest, cells)
    alike = bool((sizes == len(member)).all())
    return Order((top + member // wide) * width + left + member % wide, None if alike else sizes)


def shuffled_order(order: Order, seed: int) -> Order:
    """Every cell keeps its members in an order of its own. This function alone decides what dithering looks like.

    Own orders are closer to the dense picture than one order for the whole grid, which can alias with its structure.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    draw = torch.rand(order.rows.shape, generator=generator, device="cpu")
    if order.sizes is not None:
        filler = torch.arange(len(draw), device="cpu")[:, None] >= order.sizes
        draw[filler] = 2.0  # short cells end before the longest, so their filler stays last
    return Order(order.rows.gather(0, draw.argsort(0)), order.sizes)


def several_at_once(order: Order, count: int) -> Order:
    """Every cell keeps the next `count` members of its order in each turn, and so each of them equally often."""
    if count == 1:
        return order
    longest, cells = order.rows.shape
    sizes = torch.full((1, cells), longest) if order.sizes is None else order.sizes
    turn, place = torch.arange(longest).view(-1, 1, 1), torch.arange(count).view(1, -1, 1)
    members = (turn * count + place) % sizes  # (longest, count, cells)
    rows = order.rows.gather(0, members.flatten(0, 1)).view(longest, count * cells)
    return Order(rows, None if order.sizes is None else order.sizes.repeat(1, count))


def downsampled_order(grid: Grid, factor: float, phase: Phase, seed: int) -> Order:
    """The order in which a grid keeps 1 key in factor x factor."""
    height, width = grid
    side, kept = (factor, 1) if phase == "fixed" else cell_of(grid, factor)
    order = raster_order(nearest_spans(height, side), nearest_spans(width, side), width)
    if phase == "fixed":
        return Order(order.rows[:1], None)
    return several_at_once(shuffled_order(order, seed), kept * kept)


def cell_of(grid: Grid, factor: float) -> Cell:
    """The cell that comes closest to 1 key in factor x factor and fits the grid, the smallest of equals."""
    cells = [Cell(max(round(kept * factor), kept + (factor > 1)), kept) for kept in range(1, MOST_KEPT + 1)]
    return min((c for c in cells if c.side <= min(grid)), key=lambda c: (abs(c.side / c.kept - factor), c.kept))


def kept_rows(order: Order, turn: Tensor | int) -> Tensor:
    """The rows kept in this turn, (cells,)."""
    if order.sizes is None:
        return row_of(order.rows, turn)
    return order.rows.gather(0, turn % order.sizes).squeeze(0)


def row_of(table: Tensor, turn: Tensor | int) -> Tensor:
    """The row of a table whose turn it is. A turn that is a tensor of one element is never read by the host."""
    turn = turn % len(table)
    return table[turn] if isinstance(turn, int) else table.index_select(0, turn).squeeze(0)


def kept_count(grid: Grid, factor: float, phase: Phase) -> int:
    """How many rows of a grid are kept: with a whole factor the same in every phase."""
    if phase == "fixed":
        return int(grid[0] / factor) * int(grid[1] / factor)
    side, kept = cell_of(grid, factor)
    return grid[0] // side * kept * (grid[1] // side * kept)


def smallest_factor(grid: Grid, most: int) -> int:
    """The smallest whole factor that leaves at most `most` keys."""
    factor = 1
    while kept_count(grid, factor, "fixed") > most:
        factor += 1
    return factor


def leftover_rows(grid: Grid, stride: Grid) -> Tensor:
    """The rows of a grid right of and below its whole strides."""
    outside = torch.ones(grid, dtype=torch.bool, device="cpu")
    outside[: grid[0] // stride[0] * stride[0], : grid[1] // stride[1] * stride[1]] = False
    return cast(Tensor, outside.flatten().nonzero()).flatten()
