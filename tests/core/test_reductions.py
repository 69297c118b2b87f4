"""What a user can ask for: accepted, normalised, frozen, hashable, comparable, and what it means on a grid."""

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from todome import Downsample, Merge
from todome.levers.lever import stateless_randint


def test_defaults_and_the_order_of_the_fields():
    window = [("start", 0.0), ("stop", 1.0), ("seed", 0)]
    assert [*asdict(Downsample()).items()] == [("factor", "auto"), ("phase", "dither"), *window]
    parts = [("attention", True), ("cross_attention", False), ("feed_forward", False)]
    assert [*asdict(Merge()).items()] == [("ratio", 0.5), ("stride", (2, 2)), ("random", True), *parts, *window]


def test_sequences_become_tuples():
    assert Downsample([2, 1.5]).factor == (2, 1.5)
    assert {Downsample([2, 2]), Downsample((2, 2)), Merge([0.5]), Merge((0.5,))} == {Downsample((2, 2)), Merge((0.5,))}


@pytest.mark.parametrize("reduction", [Downsample((1, 2.5), seed=2**40), Merge((0.5, 0.3), start=1)], ids=repr)
def test_reductions_are_frozen_and_equal_their_copies(reduction):
    with pytest.raises(FrozenInstanceError):
        reduction.seed = 1
    for twin in (type(reduction)(**asdict(reduction)), copy.deepcopy(reduction), pickle.loads(pickle.dumps(reduction))):
        assert (twin, hash(twin)) == (reduction, hash(reduction))
    assert replace(reduction, stop=1.0, seed=1) != reduction


def test_reductions_print_as_they_are_written():
    assert eval(repr(Downsample((2, 1.5), seed=3))) == Downsample((2, 1.5), seed=3)
    assert eval(repr(Merge(0.25, stride=(3, 2)))) == Merge(0.25, stride=(3, 2))


@pytest.mark.parametrize(
    ("reduction", "levels"),
    [
        (Downsample(2), {1: 2}),
        (Downsample((2, 1.5, 4)), {1: 2, 2: 1.5, 3: 4}),
        (Downsample((1, 2)), {2: 2}),
        (Downsample(1), {}),
        (Downsample("auto"), {1: "auto", 2: "auto", 3: "auto"}),
        (Merge(0.5), {1: 0.5}),
        (Merge((0.5, 0, 0.25)), {1: 0.5, 3: 0.25}),
        (Merge(0), {}),
    ],
    ids=repr,
)
def test_levels_that_are_reduced(reduction, levels):
    assert reduction.levels(available=3) == levels


@pytest.mark.parametrize(("side", "factor"), [(32, 1), (64, 1), (65, 2), (128, 2), (192, 3), (256, 4)])
def test_auto_on_the_grids_of_stable_diffusion(side, factor):
    assert Downsample.factor_on((side, side), "auto") == factor


strides = st.tuples(st.integers(1, 4), st.integers(2, 4))


@given(strides, st.tuples(st.integers(4, 40), st.integers(4, 40)), st.floats(0, 1))
def test_at_least_the_destinations_are_left(stride, grid, share):
    reduction = Merge(0, stride=stride)
    left = grid[0] * grid[1] - reduction.merged_on(grid, share * reduction.most())
    assert (grid[0] // stride[0]) * (grid[1] // stride[1]) <= left <= grid[0] * grid[1]


def test_turns():
    assert [Downsample(2).phase_index(step) for step in range(4)] == [0, 1, 2, 3]
    assert [Downsample(2, phase="fixed").phase_index(step) for step in range(4)] == [0, 1, 2, 3]
    assert {Merge(random=False).phase_index(step) for step in range(4)} == {0}
    for reduction in (Downsample(2, phase="random"), Merge()):
        turns = [reduction.phase_index(step) for step in range(9)]
        assert len(set(turns)) == 9
        assert turns == [reduction.phase_index(step) for step in range(9)]
        assert turns != [replace(reduction, seed=1).phase_index(step) for step in range(9)]


def test_draws_depend_on_seed_and_step_and_fit_into_a_tensor():
    draws = [stateless_randint(seed, step) for seed in range(12) for step in range(12)]
    assert len(set(draws)) == 144
    assert all(0 <= draw < 2**31 for draw in draws)
