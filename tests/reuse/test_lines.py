"""Lines through past values: exact for what is linear in the noise level, and nothing that was kept is changed."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from todome.steps.lines import Line, moved

TYPES = st.sampled_from([torch.float16, torch.bfloat16, torch.float32])
EIGHTHS = st.integers(1, 24).map(lambda number: number / 8)  # noise levels at which slopes of 8 give whole numbers
LEVELS = st.lists(st.sampled_from([8.0, 4.0, 2.0, 1.0, 0.5]), min_size=1, max_size=8)


@given(dtype=TYPES, levels=st.tuples(EIGHTHS, EIGHTHS, EIGHTHS).filter(lambda some: some[0] != some[1]))
def test_what_is_linear_in_the_noise_level_is_predicted_exactly(dtype, levels):
    base, slope = torch.arange(-8.0, 8.0), torch.arange(16.0).sub(8).mul(-8)
    first, second, ahead = levels
    values = [(base + slope * sigma).to(dtype) for sigma in levels]  # whole numbers, which all these types hold
    line = Line(first, values[0]).moved(second, values[1])
    assert line.is_straight
    assert line.at(ahead).dtype == dtype
    rounding = 3e-7 * (1 + abs(line.weight(ahead))) * max(float(value.abs().max()) for value in values)
    torch.testing.assert_close(line.at(ahead), values[2], rtol=0, atol=rounding)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@given(weight=st.floats(-3, 5))
def test_values_of_half_a_type_are_put_together_in_a_whole_one(dtype, weight):
    """They are rounded once, at the end."""
    torch.manual_seed(0)
    before, value = torch.randn(2, 1000).to(dtype)
    line = Line(1.0, value, (0.0, before))
    exact = before.double() + (value.double() - before.double()) * weight
    once = torch.finfo(dtype).eps / 2 * exact.abs()
    assert ((line.at(weight).double() - exact).abs() <= once + 1e-5).all()


@given(levels=LEVELS)
def test_two_values_at_one_noise_level_replace_each_other(levels):
    line = None
    for count, sigma in enumerate(levels):
        line = moved(line, sigma, torch.full((3,), float(count)))
        assert float(line.value[0]) == count
        assert line.before is None or line.before[0] != line.sigma
        assert line.at(0.75).isfinite().all()
    assert line is not None
    assert line.is_straight == any(before != after for before, after in pairwise(levels))
    if line.before is not None:  # the last value at the noise level before
        last = max(
            place for place, sigma in enumerate(levels) if place + 1 < len(levels) and levels[place + 1] != sigma
        )
        assert line.before[0] == levels[last]
        assert float(line.before[1][0]) == last


@given(sigma=EIGHTHS, other=EIGHTHS)
def test_a_line_of_one_value_stays_where_it_is(sigma, other):
    line = Line(sigma, torch.arange(4.0))
    assert not line.is_straight
    assert torch.equal(line.at(other), torch.arange(4.0))
    assert line.weight(other) == 1.0


@given(dtype=TYPES)
def test_a_line_goes_through_its_values(dtype):
    first, second = torch.randn(2, 50).to(dtype)
    line = Line(3.0, first).moved(2.0, second)
    assert torch.equal(line.at(2.0), second)
    assert torch.equal(line.at(3.0), first)


@given(dtype=TYPES)
def test_values_are_never_overwritten(dtype):
    first, second, third = (torch.full((5,), number, dtype=dtype) for number in (1.0, 2.0, 4.0))
    line = Line(3.0, first).moved(2.0, second)
    ahead = line.at(1.0)
    ahead += 7  # whoever gets a prediction may do with it what he likes
    again = line.moved(1.0, third)
    again.at(0.5).zero_()
    assert [float(one[0]) for one in (first, second, third)] == [1.0, 2.0, 4.0]
    assert float(line.at(1.0)[0]) == 3.0


def test_an_infinite_step_does_no_harm():
    """The first step of some schedules is nothing but noise."""
    line = Line(1e4, torch.tensor([1.0])).moved(10.0, torch.tensor([3.0]))
    assert float(line.at(9.0)) == pytest.approx(3.0, abs=1e-3)
