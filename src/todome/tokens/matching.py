"""Bipartite matching of alike tokens: pure tensor functions.

Token merging for Stable Diffusion (ToMe for SD, arXiv 2303.17604): one token of every stride x stride cell is a
destination, every other one is a source, and the sources most like their nearest destination are averaged into it.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .grid import Grid, leftover_rows, raster_table, row_of, shuffled_table, whole_spans

SCORES_AT_ONCE = 2**27  # similarities held in memory at a time; 256 MiB in half precision


class MatchTable(NamedTuple):
    """Rows of a grid in each phase: those of the destinations, and those of the sources."""

    destinations: Tensor  # (phases, cells)
    sources: Tensor  # (phases, tokens - cells)
    places: Tensor  # (merged tokens,): 0, 1, 2, ...; its length says how many tokens are left

    def to(self, device: torch.device) -> "MatchTable":
        destinations, sources = self.destinations.to(device, torch.int32), self.sources.to(device, torch.int32)
        return MatchTable(destinations, sources, self.places.to(device))


class Matching(NamedTuple):
    """Which merged token every token goes into, and how many go into each."""

    place: Tensor  # (batch, tokens)
    sizes: Tensor  # (batch, merged tokens, 1)


def matching_table(grid: Grid, stride: Grid, random: bool, left: int, seed: int) -> MatchTable:
    """One destination per whole stride x stride cell; the right and bottom leftover holds sources only."""
    spans = [whole_spans(length, step) for length, step in zip(grid, stride, strict=True)]
    table = raster_table(spans, grid)
    members = shuffled_table(table, seed).rows if random else table.rows  # (members, cells)
    turned = [members.roll(-phase, 0) for phase in range(len(members) if random else 1)]  # (members, cells) each
    leftover = leftover_rows(grid, stride)
    sources = [torch.cat([rows[1:].flatten(), leftover]) for rows in turned]
    return MatchTable(torch.stack([rows[0] for rows in turned]), torch.stack(sources), torch.arange(left, device="cpu"))


def nearest_destinations(sources: Tensor, destinations: Tensor, at_once: int = SCORES_AT_ONCE) -> tuple[Tensor, Tensor]:
    """The similarity of every source to its nearest destination, and which one that is.

    A few sources at a time: all similarities of a 2048 px picture at once would take 3 GiB.
    """
    batch, count, _ = destinations.shape
    if batch * count * sources.shape[1] <= at_once:
        values, indices = (sources @ destinations.mT).max(-1)
        return values, indices
    chunk = max(1, at_once // (batch * count))
    found = [(part @ destinations.mT).max(-1) for part in sources.split(chunk, dim=1)]
    return torch.cat([f.values for f in found], 1), torch.cat([f.indices for f in found], 1)


@torch.no_grad()
def match(x: Tensor, table: MatchTable, phase_index: Tensor | int) -> Matching:
    """Section 3 of ToMe for SD: the sources most like a destination go into it, all others stay.

    x: (batch, tokens, channels). The merged sequence is the destinations, then the sources that stay.
    """
    destinations, sources = (row_of(rows, phase_index) for rows in (table.destinations, table.sources))
    x = F.normalize(x, dim=-1, eps=torch.finfo(x.dtype).tiny)
    batch, tokens, _ = x.shape
    similarity, best = nearest_destinations(x.index_select(1, sources), x.index_select(1, destinations))
    own, count = table.places.expand(batch, -1), len(destinations)  # (batch, merged tokens)
    staying = similarity.argsort(dim=-1, descending=True)[:, tokens - own.shape[1] :]
    place = torch.cat([own[:, :count], best.scatter(1, staying, own[:, count:])], 1)
    rows = torch.cat([destinations, sources]).long()  # (tokens,)
    place = torch.empty_like(place).index_copy_(1, rows, place)  # back in the order of the tokens
    ones = torch.ones_like(place, dtype=torch.float32)
    sizes = torch.zeros_like(own, dtype=torch.float32).scatter_add_(1, place, ones)
    return Matching(place, sizes.unsqueeze(-1))


def merge(x: Tensor, matching: Matching) -> Tensor:
    """(batch, tokens, channels) -> (batch, merged tokens, channels): the mean of what goes into each.

    Summed in float32 at least: rounded back to half precision, it does not matter in which order a GPU adds tokens.
    """
    batch, merged, _ = matching.sizes.shape
    place = matching.place.unsqueeze(-1).expand(-1, -1, x.shape[-1])
    exact = torch.promote_types(x.dtype, torch.float32)
    total = x.new_zeros(batch, merged, x.shape[-1], dtype=exact)
    return (total.scatter_add_(1, place, x.to(exact)) / matching.sizes).to(x.dtype)


def unmerge(x: Tensor, matching: Matching) -> Tensor:
    """(batch, merged tokens, channels) -> (batch, tokens, channels): every token gets a copy of what it is in."""
    return x.gather(1, matching.place.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
