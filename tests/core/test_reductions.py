"""What a user can ask for: accepted, normalised, frozen, hashable, comparable, and what it means on a grid."""

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from todome import Downsample, Merge
from todome.reductions import stateless_randint

laws = settings(deadline=None, max_examples=100)

ACCEPTED: list[Downsample | Merge] = [
    Downsample(),
    Downsample("auto"),
    Downsample(1),
    Downsample(2),
    Downsample(1.5),
    Downsample((2, 2)),
    Downsample((1, 2.5, 4)),
    Downsample(2, phase="fixed"),
    Downsample(2, phase="random", seed=2**40),
    Downsample(2, start=0.25, stop=0.25),
    Downsample(2, start=0, stop=1),
    Merge(),
    Merge(0),
    Merge(0.75),
    Merge((0.5, 0.3)),
    Merge(0.9375, stride=(4, 4)),
    Merge(0.5, stride=(1, 2)),
    Merge(attention=False, feed_forward=True),
    Merge(attention=False, cross_attention=True, random=False),
    Merge(0.5, start=1, stop=1),
]


def test_defaults_of_downsample():
    expected = {"factor": "auto", "phase": "dither", "start": 0.0, "stop": 1.0, "seed": 0}
    assert asdict(Downsample()) == expected


def test_defaults_of_merge():
    parts = {"attention": True, "cross_attention": False, "feed_forward": False}
    expected = {"ratio": 0.5, "stride": (2, 2), "random": True, **parts, "start": 0.0, "stop": 1.0, "seed": 0}
    assert asdict(Merge()) == expected


def test_sequences_become_tuples():
    assert Downsample([2, 1.5]).factor == (2, 1.5)
    assert Merge([0.5, 0.25]).ratio == (0.5, 0.25)
    assert Downsample(2).factor == 2
    assert Merge(0.5).ratio == 0.5


@pytest.mark.parametrize("reduction", ACCEPTED, ids=repr)
def test_reductions_are_frozen(reduction):
    for field in asdict(reduction):
        with pytest.raises(FrozenInstanceError):
            setattr(reduction, field, 1)


@pytest.mark.parametrize("reduction", ACCEPTED, ids=repr)
def test_reductions_equal_their_copies_and_hash_alike(reduction):
    for twin in (type(reduction)(**asdict(reduction)), copy.deepcopy(reduction), pickle.loads(pickle.dumps(reduction))):
        assert twin == reduction
        assert hash(twin) == hash(reduction)


def test_reductions_given_as_lists_hash_like_those_given_as_tuples():
    assert {Downsample([2, 2]), Downsample((2, 2)), Merge([0.5]), Merge((0.5,))} == {Downsample((2, 2)), Merge((0.5,))}


@pytest.mark.parametrize(
    "change", [{"factor": 3}, {"phase": "fixed"}, {"start": 0.1}, {"stop": 0.9}, {"seed": 1}, {"factor": (2,)}], ids=str
)
def test_reductions_that_differ_in_any_field_are_not_equal(change):
    assert replace(Downsample(2), **change) != Downsample(2)


def test_downsample_is_not_merge():
    assert Downsample(1) != Merge(0)


def test_reductions_print_as_they_are_written():
    assert eval(repr(Downsample((2, 1.5), seed=3))) == Downsample((2, 1.5), seed=3)
    assert eval(repr(Merge(0.25, stride=(3, 2)))) == Merge(0.25, stride=(3, 2))


@pytest.mark.parametrize(
    ("reduction", "levels"),
    [
        (Downsample(2), {1: 2}),
        (Downsample((2, 1.5)), {1: 2, 2: 1.5}),
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


@pytest.mark.parametrize("reduction", [Downsample((2, 2)), Merge((0.5, 0.5))], ids=repr)
def test_as_many_levels_as_the_model_has_are_accepted(reduction):
    assert len(reduction.levels(available=2)) == 2


def test_windowed():
    assert not Downsample(2).windowed
    assert not Merge(start=0, stop=1).windowed
    assert Downsample(2, stop=0.6).windowed
    assert Merge(start=0.1).windowed


@pytest.mark.parametrize(("side", "factor"), [(64, 1), (128, 2), (192, 3), (256, 4)])
def test_auto_on_a_grid(side, factor):
    assert Downsample.factor_on((side, side), "auto") == factor


@pytest.mark.parametrize("factor", [1, 1.5, 8, 7.99])
def test_factors_up_to_the_grid_are_accepted(factor):
    assert Downsample.factor_on((8, 9), factor) == factor


@pytest.mark.parametrize(
    ("grid", "stride", "ratio", "merged"),
    [((8, 8), (2, 2), 0.5, 32), ((8, 8), (2, 2), 0.75, 48), ((5, 5), (2, 2), 0.5, 12), ((3, 3), (3, 3), 8 / 9, 8)],
)
def test_merged_tokens_on_a_grid(grid, stride, ratio, merged):
    assert Merge(ratio, stride=stride).merged_on(grid, ratio) == merged


strides = st.tuples(st.integers(1, 4), st.integers(2, 4))


@laws
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


def fields(reduction: Any) -> tuple[str, ...]:
    return tuple(asdict(reduction))


def test_fields_stay_in_the_documented_order():
    assert fields(Downsample()) == ("factor", "phase", "start", "stop", "seed")
    parts = ("attention", "cross_attention", "feed_forward")
    assert fields(Merge()) == ("ratio", "stride", "random", *parts, "start", "stop", "seed")
