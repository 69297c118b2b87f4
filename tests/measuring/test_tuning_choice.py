"""The choice of options: within the budget, and as cheap as trying all of them, up to a bin for each layer."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from todome.tools.tuning.choice import Option, cheapest


def brute_force(groups: list[list[Option]], budget: float) -> float | None:
    sums = [(sum(o.cost for o in chosen), sum(o.weight for o in chosen)) for chosen in itertools.product(*groups)]
    return min((cost for cost, weight in sums if weight <= budget), default=None)


# Of very different sizes, and often the same ones.
sizes = st.builds(lambda digit, power: digit * 10.0**power, st.integers(0, 3), st.integers(-3, 0))
options = st.builds(Option, st.none(), sizes, sizes)
layers = st.lists(st.lists(options, min_size=1, max_size=4), min_size=1, max_size=5)


@given(layers, st.sampled_from([0, 0.01, 0.5, 3, 100]))
@settings(deadline=None)
def test_it_is_as_good_as_trying_everything(groups: list[list[Option]], budget: float):
    bins = 500
    found = cheapest(groups, budget, bins)
    best, sure = brute_force(groups, budget), brute_force(groups, budget * (1 - len(groups) / bins))
    if found is None:
        assert sure is None
        return
    assert best is not None
    assert all(option in group for option, group in zip(found, groups, strict=True))
    assert sum(option.weight for option in found) <= budget * (1 + 1e-9)
    cost = sum(option.cost for option in found)
    assert cost >= best - 1e-9
    assert sure is None or cost <= sure + 1e-9


def test_a_large_model_takes_no_time_to_speak_of_and_gives_the_same_again():
    source = np.random.default_rng(0)
    groups = [[Option(i, *source.random(2)) for i in range(25)] for _ in range(70)]
    found = cheapest(groups, 20.0)
    assert found is not None
    assert sum(option.weight for option in found) <= 20
    assert cheapest(groups, 20.0) == found


def test_nothing_may_fit():
    assert cheapest([[Option("a", 1, 2)]], 1) is None
    assert cheapest([[Option("a", 1, 0), Option("b", 0, 1)]], 0) == [Option("a", 1, 0)]
