"""Guarantee 1: where nothing is reduced, nothing differs by one bit."""

from typing import Any

import pytest
import torch
from promises import both, over_zoo, reduced
from zoo import Host, reduced_everywhere

import todome
from todome import Downsample, Merge

# "auto", the default, says so where it finds nothing to do, as on grids this small.
AUTO_IS_DENSE = 'ignore:factor="auto" leaves this model dense'


@both
@over_zoo
def test_a_reduction_changes_the_output(host: Host, kind: type):
    """Without this, all that is said below about equal outputs would be empty."""
    target = host.build()
    assert not torch.allclose(host.run(target), reduced(host, target, kind), atol=1e-4)


@over_zoo
@pytest.mark.parametrize("reduction", [Downsample(factor=1), Downsample(factor=1.0), Merge(ratio=0)], ids=str)
def test_factor_1_and_ratio_0_are_dense(host: Host, reduction: Any):
    target = host.build()
    dense = host.run(target)
    todome.apply(target, reduction)
    assert torch.equal(host.run(target), dense)


@over_zoo
@pytest.mark.filterwarnings(AUTO_IS_DENSE)
def test_auto_is_dense_on_small_grids(host: Host):
    target = host.build()
    dense = host.run(target)
    todome.apply(target)
    assert torch.equal(host.run(target), dense)


@both
@over_zoo
def test_outside_the_window_is_dense(host: Host, kind: type):
    target = host.build()
    dense = host.run(target)
    patch = todome.apply(target, reduced_everywhere(kind, host, start=0.25, stop=0.75))
    is_dense = []
    for step in range(4):
        patch.at(step, 4)
        is_dense.append(torch.equal(host.run(target), dense))
    assert is_dense == [True, False, False, True]
