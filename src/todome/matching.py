"""Bipartite matching of alike tokens: pure tensor functions.

Token merging for Stable Diffusion (ToMe for SD, arXiv 2303.17604): one token of every stride x stride cell is a
destination, every other one is a source, and the sources most like their nearest destination are averaged into it.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .grid import Grid, leftover_rows, raster_order, shuffled_order, whole_spans

SCORES_AT_ONCE = 2**25  # similarities held in memory at a time; 64 MiB in half precision


class Cells(NamedTuple):
    """A grid cut for matching: the members of every cell, turn by turn, and the rows in no cell."""

    rows: Tensor  # (members, cells)
    leftover: Tensor

    def to(self, device: torch.device) -> "Cells":
        return Cells(self.rows.to(device), self.leftover.to(device))


class Matching(NamedTuple):
    """Which merged token every token went into, and how many went into each."""

    place: Tensor  # (batch, tokens)
    sizes: Tensor  # (batch, merged tokens, 1)


def matching_cells(grid: Grid, stride: Grid, random: bool, seed: int) -> Cells:
    """One destination per whole stride x stride cell; the right and bottom leftover holds sources only."""
    order = raster_order(whole_spans(grid[0], stride[0]), whole_spans(grid[1], stride[1]), grid[1])
    order = shuffled_order(order, seed) if random else order
    return Cells(order.rows, leftover_rows(grid, stride))


def split(cells: Cells, turn: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of destinations and of sources in this turn."""
    members = torch.arange(len(cells.rows), device=cells.rows.device)
    turned = cells.rows.index_select(0, (members + turn) % len(members))  # (members, cells)
    return turned[0], torch.cat([turned[1:].flatten(), cells.leftover])


def nearest(sources: Tensor, destinations: Tensor) -> tuple[Tensor, Tensor]:
    """The similarity of every source to its nearest destination, and which one that is.

    A few sources at a time: all similarities of a 2048 px picture at once would take 3 GiB.
    """
    batch, count, _ = destinations.shape
    chunk = max(1, SCORES_AT_ONCE // (batch * count))
    found = [(part @ destinations.mT).max(-1) for part in sources.split(chunk, dim=1)]
    return torch.cat([f.values for f in found], 1), torch.cat([f.indices for f in found], 1)


@torch.no_grad()
def match(x: Tensor, cells: Cells, turn: Tensor, merged: int) -> Matching:
    """Section 3 of ToMe for SD: the `merged` sources most like a destination go into it, all others stay.

    x: (batch, tokens, channels). The merged sequence is the sources that stay, then the destinations.
    """
    to, of = split(cells, turn)
    x = F.normalize(x, dim=-1, eps=torch.finfo(x.dtype).tiny)
    alike, best = nearest(x.index_select(1, of), x.index_select(1, to))  # (batch, sources)
    ranked = alike.argsort(dim=-1, descending=True)
    staying = len(of) - merged
    into = best.gather(1, ranked[:, :merged]) + staying
    itself = torch.arange(staying, device=x.device).expand(len(x), -1)
    of_place = torch.empty_like(ranked).scatter_(1, ranked, torch.cat([into, itself], 1))
    to_place = torch.arange(staying, staying + len(to), device=x.device).expand(len(x), -1)
    place = torch.empty(x.shape[:2], dtype=torch.long, device=x.device)
    place = place.index_copy(1, of, of_place).index_copy(1, to, to_place)
    ones = torch.ones_like(place, dtype=torch.float32)
    sizes = ones.new_zeros(len(x), staying + len(to)).scatter_add_(1, place, ones)
    return Matching(place, sizes.unsqueeze(-1))


def merge(x: Tensor, matching: Matching) -> Tensor:
    """(batch, tokens, channels) -> (batch, merged tokens, channels): the mean of what went into each.

    Summed in float32: the sum of a few half-precision tokens is exact there, hence the same whatever order a GPU adds in.
    """
    batch, merged, _ = matching.sizes.shape
    place = matching.place.unsqueeze(-1).expand(-1, -1, x.shape[-1])
    total = x.new_zeros(batch, merged, x.shape[-1], dtype=torch.float32)
    return (total.scatter_add(1, place, x.float()) / matching.sizes).to(x.dtype)


def unmerge(x: Tensor, matching: Matching) -> Tensor:
    """(batch, merged tokens, channels) -> (batch, tokens, channels): every token gets a copy of what it went into."""
    return x.gather(1, matching.place.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
