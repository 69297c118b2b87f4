"""Merging and unmerging alike tokens: laws, a dense-matrix twin, and agreement with tomesd."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tomesd.merge import bipartite_soft_matching_random2d
from torch import Tensor
from torch.nn import functional as F
from versions import HALVES

from todome.tokens.matching import (
    SCORES_AT_ONCE,
    Matching,
    MatchTable,
    match,
    matching_table,
    merge,
    nearest_destinations,
    unmerge,
)

GRIDS = [(8, 8), (6, 10), (7, 9), (5, 5), (9, 4), (11, 13)]  # most strides do not divide the last four


def phase(number: int) -> Tensor:
    return torch.tensor([number])


def table_of(grid: tuple[int, int], stride: tuple[int, int], random: bool, merged: int, seed: int = 0) -> MatchTable:
    return matching_table(grid, stride, random, grid[0] * grid[1] - merged, seed)


def split(
    grid: tuple[int, int], stride: tuple[int, int], random: bool, seed: int, number: int
) -> tuple[Tensor, Tensor]:
    """The rows of destinations and of sources in a phase."""
    table = table_of(grid, stride, random, 0, seed)
    number %= len(table.destinations)
    return table.destinations[number], table.sources[number]


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@st.composite
def matchings(draw):
    """Random tokens and how they were matched, on any grid with any stride, phase and number of merged tokens."""
    stride = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    grid = draw(st.tuples(st.integers(stride[0], 11), st.integers(stride[1], 11)))
    tokens = grid[0] * grid[1]
    merged = draw(st.integers(0, tokens - (grid[0] // stride[0]) * (grid[1] // stride[1])))
    x = noise(draw(st.integers(1, 3)), tokens, draw(st.integers(1, 5)), seed=draw(st.integers(0, 999)))
    table = table_of(grid, stride, draw(st.booleans()), merged, draw(st.integers(0, 99)))
    return x, merged, match(x, table, phase(draw(st.integers(0, 2**31 - 1))))


def groups(found: Matching) -> Tensor:
    """(batch, merged tokens, tokens): 1 where a token went into a merged token."""
    return F.one_hot(found.place, found.sizes.shape[1]).mT.float()


@given(matchings())
def test_sizes_count_the_tokens_of_every_group(case):
    x, merged, found = case
    assert found.sizes.shape == (len(x), x.shape[1] - merged, 1)
    assert found.sizes.equal(groups(found).sum(-1, keepdim=True))
    assert (found.sizes >= 1).all()


@given(matchings())
def test_tokens_that_stay_come_back_exactly(case):
    x, _, found = case
    alone = unmerge(found.sizes, found).squeeze(-1) == 1  # (batch, tokens)
    assert unmerge(merge(x, found), found)[alone].equal(x[alone])


@given(
    st.tuples(st.integers(4, 11), st.integers(4, 11)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.booleans(),
    st.integers(0, 2**31 - 1),
)
def test_destinations_are_one_per_cell_and_leftovers_are_sources(grid, stride, random, number):
    to, of = split(grid, stride, random, 7, number)
    assert sorted([*to.tolist(), *of.tolist()]) == list(range(grid[0] * grid[1]))
    cells = [(row // grid[1] // stride[0], row % grid[1] // stride[1]) for row in to.tolist()]
    assert cells == [(i, j) for i in range(grid[0] // stride[0]) for j in range(grid[1] // stride[1])]


@pytest.mark.parametrize("random", [False, True])
def test_a_phase_is_a_number_or_a_tensor(random):
    x, table = noise(2, 63, 8), table_of((7, 9), (2, 2), random, merged=30, seed=1)
    assert all(match(x, table, n).place.equal(match(x, table, phase(n)).place) for n in range(6))


@pytest.mark.parametrize("at_once", [1, 7, 64, 1000])
@pytest.mark.parametrize("grid", GRIDS)
def test_a_search_in_chunks_finds_the_same(grid, at_once):
    tokens = noise(2, grid[0] * grid[1], 8)
    sources, destinations = tokens[:, ::2], tokens[:, 1::2]
    whole, in_chunks = (nearest_destinations(sources, destinations, most) for most in (SCORES_AT_ONCE, at_once))
    torch.testing.assert_close(in_chunks, whole)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_zero_vectors_are_like_nothing(dtype):
    alike = torch.tensor([1.0, 2.0])
    x = torch.stack([alike, 0 * alike, 3 * alike, 2 * alike])[None].to(dtype)  # a similarity of NaN would rank first
    found = match(x, table_of((2, 2), (2, 2), False, merged=2), phase(0))
    assert found.place.tolist() == [[0, 1, 0, 0]]


@given(matchings())
def test_gradients_are_those_of_dense_matrices(case):
    x, _, found = case
    weight = noise(*x.shape, seed=1)
    ours, dense = x.clone().requires_grad_(), x.clone().requires_grad_()
    members = groups(found)
    expected = members.mT @ ((members @ dense) / members.sum(-1, keepdim=True))
    result = unmerge(merge(ours, found), found)
    torch.testing.assert_close(result, expected)
    (result * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(ours.grad, dense.grad)


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("stride", [(2, 2), (3, 2), (2, 4), (3, 3)])
@pytest.mark.parametrize("grid", GRIDS)
def test_corner_matching_agrees_with_tomesd(grid, stride, ratio):
    (height, width), (sy, sx) = grid, stride
    x, r = noise(3, height * width, 16), int(height * width * ratio)
    their_merge, their_unmerge = bipartite_soft_matching_random2d(x, width, height, sx, sy, r, no_rand=True)
    most = height * width - (height // sy) * (width // sx)
    found = match(x, table_of(grid, stride, False, merged=min(r, most)), phase(0))
    values = noise(3, height * width, 5, seed=2)
    torch.testing.assert_close(unmerge(merge(values, found), found), their_unmerge(their_merge(values)))


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_merging_rounds_once(dtype):
    x = noise(2, 256, 16).to(dtype)
    found = match(x, table_of((16, 16), (4, 4), False, merged=200), phase(0))
    exact = groups(found).double() @ x.double() / found.sizes.double()
    assert merge(x, found).equal(exact.to(dtype))
