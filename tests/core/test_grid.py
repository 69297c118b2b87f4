"""Which rows of a grid are kept: laws that hold for every grid, factor and seed, and a few exact examples."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from todome.tokens.grid import (
    RowTable,
    cell_of,
    downsampling_table,
    kept_count,
    kept_rows,
    leftover_rows,
    smallest_factor,
    tile_of,
)

seeds = st.integers(0, 2**31)


@st.composite
def grids_and_factors(draw, most=70, whole=False):
    grid = draw(st.tuples(st.integers(1, most), st.integers(1, most)))
    wholes = st.integers(1, min(grid))
    return grid, draw(wholes if whole else wholes | st.floats(1, min(grid)))


def phase_index(number: int) -> Tensor:
    return torch.tensor([number])


def members_of(order: RowTable) -> list[list[int]]:
    """The rows of every cell, in the order of their turns."""
    longest, cells = order.rows.shape
    sizes = [longest] * cells if order.sizes is None else order.sizes.flatten().tolist()
    return [order.rows[:size, cell].tolist() for cell, size in enumerate(sizes)]


def nearest_rows(grid: tuple[int, int], size: tuple[int, int]) -> list[int]:
    """The rows that ToDo's nearest sampling keeps."""
    rows = torch.arange(grid[0] * grid[1], dtype=torch.float32).view(1, 1, *grid)
    return F.interpolate(rows, size=size, mode="nearest").flatten().long().tolist()


@given(grids_and_factors(whole=True), seeds)
def test_cells_partition_the_grid(case, seed):
    (height, width), factor = case
    cells = members_of(downsampling_table((height, width), factor, "dither", seed))
    assert sorted(row for cell in cells for row in cell) == list(range(height * width))


@given(grids_and_factors(), st.integers(0, 2**31), seeds)
def test_as_many_rows_are_kept_as_the_count_says_and_none_twice_and_one_of_every_cell(case, number, seed):
    grid, factor = case
    for phase in ("dither", "fixed", "random"):
        table = downsampling_table(grid, factor, phase, seed)
        kept = kept_rows(table, phase_index(number))
        assert kept.equal(kept_rows(table, number))
        assert len(kept.unique()) == len(kept) == kept_count(grid, factor, phase)
        assert all(0 <= row < grid[0] * grid[1] for row in kept.tolist())
        if phase != "fixed":
            assert all(row in cell for row, cell in zip(kept.tolist(), members_of(table), strict=True))


@given(st.integers(1, 5), st.integers(1, 12), st.tuples(st.integers(1, 3), st.integers(1, 3)), seeds)
def test_every_key_is_kept_equally_often(kept, side, cells, seed):
    """Whatever the factor is: otherwise attention would favour some keys at every step."""
    side = max(kept, side)
    grid = (side * cells[0], side * cells[1])
    order = downsampling_table(grid, side / kept, "dither", seed)
    turns = side * side
    times = torch.cat([kept_rows(order, phase_index(i)) for i in range(turns)]).bincount(minlength=grid[0] * grid[1])
    assert (times * side**2 == turns * kept**2).all()


@pytest.mark.parametrize(
    ("grid", "factor", "cell"),
    [
        ((64, 64), 1, (1, 1)),
        ((64, 64), 1.01, (6, 5)),
        ((64, 64), 1.5, (3, 2)),
        ((64, 64), 3.34, (10, 3)),
        ((2, 9), 1.5, (2, 1)),
    ],
)
def test_the_cell_of_a_factor(grid, factor, cell):
    assert cell_of(grid, factor) == cell


@given(grids_and_factors())
def test_a_cell_fits_its_grid_and_comes_close_to_the_factor(case):
    grid, factor = case
    side, kept = cell_of(grid, factor)
    assert side <= min(grid)
    assert (side == kept) == (factor == 1)
    assert abs(side / kept - factor) <= (0.2 if min(grid) >= 5 * factor + 1 else 1)


@given(grids_and_factors(), st.integers(0, 2**31), seeds)
def test_fixed_keeps_what_todo_keeps_at_every_turn(case, number, seed):
    grid, factor = case
    kept = kept_rows(downsampling_table(grid, factor, "fixed", seed), phase_index(number))
    assert kept.tolist() == nearest_rows(grid, (int(grid[0] / factor), int(grid[1] / factor)))


@given(grids_and_factors(most=24, whole=True), seeds)
def test_every_cell_cycles_through_its_members_before_it_repeats_one(case, seed):
    grid, factor = case
    order = downsampling_table(grid, factor, "dither", seed)
    longest = len(order.rows)
    kept = torch.stack([kept_rows(order, phase_index(i)) for i in range(2 * longest)]).T.tolist()  # (cells, turns)
    for history, cell in zip(kept, members_of(order), strict=True):
        cycle = history[: len(cell)]
        assert sorted(cycle) == sorted(cell)
        assert history == [cycle[i % len(cycle)] for i in range(2 * longest)]


def test_cells_differ_in_their_orders_and_share_no_phase_at_any_turn():
    order = downsampling_table((64, 64), 2, "dither", seed=0)
    corners = downsampling_table((64, 64), 2, "fixed", seed=0).rows
    patterns = {tuple(pattern) for pattern in (order.rows - corners).T.tolist()}
    assert len(patterns) == 24  # all 4! orders of a 2 x 2 cell among 1024 cells
    for number in range(4):
        counts = (kept_rows(order, phase_index(number)) - corners[0]).unique(return_counts=True)[1]
        assert counts.min() > 1024 / 4 * 0.8  # each of the four members in about a quarter of the cells


def test_cells_of_a_grid_the_factor_does_not_divide():
    assert members_of(downsampling_table((3, 3), 2, "fixed", 0)) == [[0]]
    order = downsampling_table((3, 5), 2, "dither", 0)
    assert [sorted(cell) for cell in members_of(order)] == [[0, 1, 5, 6, 10, 11], [2, 3, 4, 7, 8, 9, 12, 13, 14]]


@given(st.tuples(st.integers(1, 300), st.integers(1, 300)), st.integers(1, 5000))
def test_smallest_factor_is_minimal(grid, most):
    factor = smallest_factor(grid, most)
    assert kept_count(grid, factor, "fixed") <= most
    assert factor == 1 or kept_count(grid, factor - 1, "fixed") > most


@given(st.tuples(st.integers(1, 20), st.integers(1, 20)), st.tuples(st.integers(1, 20), st.integers(1, 20)))
def test_leftover_rows_are_right_of_and_below_the_whole_strides(grid, stride):
    whole = grid[0] // stride[0] * stride[0], grid[1] // stride[1] * stride[1]
    expected = [r * grid[1] + c for r in range(grid[0]) for c in range(grid[1]) if r >= whole[0] or c >= whole[1]]
    assert leftover_rows(grid, stride).tolist() == expected


@pytest.mark.parametrize(
    ("grid", "tiles", "tile"),
    [
        ((16, 24), 1, (16, 24)),
        ((16, 9), 2, (8, 9)),
        ((15, 8), 2, (15, 4)),
        ((16, 24), 4, None),  # 2 x 2, 1 x 4 or 4 x 1
        ((15, 8), 4, (15, 2)),
        ((15, 9), 2, None),
        ((7, 5), 35, (1, 1)),
    ],
)
def test_tiles_are_told_where_there_is_one_way_to_cut(grid, tiles, tile):
    assert tile_of(grid, tiles) == tile
