"""The linear probe tells kinds apart and finds photos of something else."""

import prepare
import pytest
import torch
from probe import Probe, cross_validated
from torch import Tensor


def separable(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Features of five kinds, each around a place of its own."""
    kinds = torch.arange(count) % 5
    noise = torch.randn(count, 16, generator=torch.Generator().manual_seed(seed))
    return 3 * torch.eye(5, 16)[kinds] + 0.3 * noise, kinds


def test_the_probe_is_right_on_what_it_has_not_seen():
    probe = Probe(*separable(100, seed=0))
    features, kinds = separable(50, seed=1)
    assert probe(features).argmax(-1).equal(kinds)
    assert probe(features).sum(-1).tolist() == pytest.approx([1] * 50)


def test_a_photo_of_something_else_is_found():
    features, kinds = separable(100, seed=0)
    assert cross_validated(features, kinds).min() > 0.5
    kinds[7] = 0  # it is a 2
    own = cross_validated(features, kinds)
    assert own[7] < prepare.LEAST_LIKELY
    assert own[torch.arange(100) != 7].min() > 0.5


def test_the_only_photo_of_a_kind_is_no_obstacle():
    features, kinds = separable(40, seed=0)
    kinds = torch.where(kinds == 4, 3, kinds)
    kinds[4] = 4
    assert cross_validated(features, kinds)[4] < prepare.LEAST_LIKELY
