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
    """Rows of a grid in each phase: those of the destinations, and after them those of the sources."""

    rows: Tensor  # (phases, tokens)
    places: Tensor  # (merged tokens,): 0, 1, 2, ...; its length says how many tokens are left
    destinations: int

    def to(self, device: torch.device) -> "MatchTable":
        rows, places = self.rows.to(device, torch.int32), self.places.to(device)
        return MatchTable(rows, places, self.destinations)


class Matching(NamedTuple):
    """Which merged token every token goes into, and how many go into each."""

    place: Tensor  # (batch, tokens)
    sizes: Tensor  # (batch, merged tokens, 1)


def matching_table(grid: Grid, stride: Grid, random: bool, left: int, seed: int) -> MatchTable:
    """One destination per whole stride x stride cell; the right and bottom leftover holds sources only."""
    spans = [whole_spans(length, step) for length, step in zip(grid, stride, strict=True)]
    table = raster_table(spans, grid)
    members = shuffled_table(table, seed).rows if random else table.rows  # (members, cells)
    leftover = leftover_rows(grid, stride)
    phases = range(len(members) if random else 1)
    rows = [torch.cat([members.roll(-phase, 0).flatten(), leftover]) for phase in phases]
    return MatchTable(torch.stack(rows), torch.arange(left, device="cpu"), members.shape[1])


def nearest_destinations(sources: Tensor, destinations: Tensor) -> tuple[Tensor, Tensor]:
    """The similarity of every source to its nearest destination, and which one that is.

    A few sources at a time: all similarities of a 2048 px picture at once would take 3 GiB.
    """
    batch, count, _ = destinations.shape
    chunk = max(1, SCORES_AT_ONCE // (batch * count))
    found = [(part @ destinations.mT).max(-1) for part in sources.split(chunk, dim=1)]
    if len(found) == 1:
        return found[0].values, found[0].indices
    return torch.cat([f.values for f in found], 1), torch.cat([f.indices for f in found], 1)


@torch.no_grad()
def match(x: Tensor, table: MatchTable, phase_index: Tensor | int) -> Matching:
    """Section 3 of ToMe for SD: the sources most like a destination go into it, all others stay.

    x: (batch, tokens, channels). The merged sequence is the destinations, then the sources that stay.
    """
    rows, count = row_of(table.rows, phase_index), table.destinations  # (tokens,)
    x = F.normalize(x, dim=-1, eps=torch.finfo(x.dtype).tiny).index_select(1, rows)
    batch, tokens, _ = x.shape
    similarity, best = nearest_destinations(x[:, count:], x[:, :count])  # (batch, sources)
    own = table.places.expand(batch, -1)  # (batch, merged tokens)
    staying = similarity.argsort(dim=-1, descending=True)[:, tokens - own.shape[1] :]
    place = torch.cat([own[:, :count], best.scatter(1, staying, own[:, count:])], 1)
    place = torch.empty_like(place).index_copy_(1, rows.long(), place)  # back in the order of the tokens
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
