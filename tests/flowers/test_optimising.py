"""Muon: steps that are orthogonal, of linear layers and of convolutions."""

from typing import Any

import pytest
import torch
from optimising import Muon, orthogonal
from torch import nn


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 72), (2, 64, 8)])
def test_what_is_made_orthogonal_is_close_to_the_nearest_such_matrix(shape):
    torch.manual_seed(0)
    matrices = torch.randn(shape)
    made = orthogonal(matrices)
    values = torch.linalg.svdvals(made)
    assert 0.3 < values.min() < values.max() < 1.4
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    nearest = left @ right
    assert (made * nearest).sum() > 0.95 * made.norm() * nearest.norm()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_convolution_is_moved_as_a_matrix(memory_format):
    torch.manual_seed(0)
    convolution: Any = nn.Conv2d(4, 8, 3)
    convolution.to(memory_format=memory_format)
    linear = nn.Linear(36, 8)
    with torch.no_grad():
        linear.weight.copy_(convolution.weight.flatten(1))
    gradient = torch.randn(8, 36)
    for weight in (convolution.weight, linear.weight):
        weight.grad = gradient.view(weight.shape)
        Muon([weight], lr=0.1, weight_decay=0.5).step()
    assert convolution.weight.flatten(1).equal(linear.weight)
