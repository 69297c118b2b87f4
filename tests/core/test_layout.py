"""Layouts: text and grids in one sequence, tiles, and tables of both."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from todome.tokens.grid import downsampling_table, kept_count, kept_rows
from todome.tokens.layout import grids_in, layout_table, tile_of, token_count

laws = settings(deadline=None, max_examples=80)
grids = st.one_of(
    st.tuples(st.integers(2, 9), st.integers(2, 9)), st.tuples(st.integers(2, 4), st.integers(2, 6), st.integers(2, 6))
)
layouts = st.lists(st.one_of(st.integers(0, 5), grids), min_size=1, max_size=4).map(tuple)


def rows_of(layout, phase: int, seed: int = 0) -> list[int]:
    table = layout_table(layout, lambda grid: downsampling_table(grid, 2, "dither", seed))
    return kept_rows(table.to(torch.device("cpu")), phase).tolist()


def test_a_grid_alone_is_its_own_table():
    table = layout_table(((6, 8),), lambda grid: downsampling_table(grid, 2, "dither", 3))
    assert table.rows.equal(downsampling_table((6, 8), 2, "dither", 3).rows)


@laws
@given(layouts, st.integers(0, 50))
def test_text_is_always_kept_and_grids_in_part(layout, phase):
    rows, offset = rows_of(layout, phase), 0
    assert len(set(rows)) == len(rows)
    for part in layout:
        length = token_count((part,))
        mine = [row - offset for row in rows if offset <= row < offset + length]
        expected = length if isinstance(part, int) else kept_count(part, 2, "dither")
        assert len(mine) == expected
        offset += length
    assert offset == token_count(layout)


@laws
@given(layouts, st.integers(0, 3))
def test_every_grid_has_the_rows_it_has_alone(layout, phase):
    rows, offset = rows_of(layout, phase), 0
    for part in layout:
        length = token_count((part,))
        if not isinstance(part, int):
            mine = [row - offset for row in rows if offset <= row < offset + length]
            assert mine == kept_rows(downsampling_table(part, 2, "dither", 0), phase).tolist()
        offset += length


@laws
@given(grids, st.integers(0, 99))
def test_dithering_in_any_number_of_axes_keeps_every_token_equally_often(grid, seed):
    even = tuple(length // 2 * 2 for length in grid)
    table = downsampling_table(even, 2, "dither", seed)
    seen = [row for phase in range(2 ** len(even)) for row in kept_rows(table, phase).tolist()]
    assert sorted(seen) == list(range(math.prod(even)))


def test_grids_in_a_layout():
    assert grids_in((77, (4, 6), 3, (2, 4, 4))) == [(4, 6), (2, 4, 4)]


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
