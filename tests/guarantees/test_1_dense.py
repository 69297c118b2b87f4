"""Guarantee 1: where nothing is reduced, nothing differs by one bit."""

from typing import Any

import pytest
import torch
from promises import over_zoo
from torch import Tensor
from zoo import Host, reduced_everywhere

import todome
from todome import Downsample, Merge

# "auto", the default, says so where it finds nothing to do, as on grids this small.
AUTO_IS_DENSE = 'ignore:factor="auto" leaves this model dense'


@over_zoo
@pytest.mark.filterwarnings(AUTO_IS_DENSE)
def test_factor_1_ratio_0_and_auto_on_small_grids_are_dense(host: Host):
    target = host.build()
    dense = host.run(target)
    for reduction in (Downsample(factor=1), Downsample(factor=1.0), Merge(ratio=0)):
        with todome.apply(target, reduction):
            assert torch.equal(host.run(target), dense), reduction
    todome.apply(target)
    assert torch.equal(host.run(target), dense)


@over_zoo
def test_outside_the_window_is_dense_and_inside_it_is_not(host: Host):
    """Without the second half, all that is said here about equal outputs would be empty."""
    target = host.build()
    dense = host.run(target)
    for kind in (Downsample, Merge):
        with todome.apply(target, reduced_everywhere(kind, host, start=0.3, stop=0.6)) as patch:
            before, inside, after = (output_at(host, target, patch, step) for step in range(3))
        assert torch.equal(before, dense), kind
        assert not torch.allclose(inside, dense, atol=1e-4), kind
        assert torch.equal(after, dense), kind


def output_at(host: Host, target: Any, patch: todome.Patch, step: int) -> Tensor:
    """In one of three steps."""
    patch.at(step, 3)
    return host.run(target)
