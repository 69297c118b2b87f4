"""Guarantee 7 on every torch: what checkpointing computes again has the gradients of the first time, or is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from zoo import mini_unet, noise, text

import todome
from todome import Downsample, Merge
from todome.hooks.compiling import TORCH

both = pytest.mark.parametrize("reduction", [Downsample(factor=2), Merge()], ids=["keys", "merge"])


def loss_of(model: Any, step: int, again: bool) -> Tensor:
    def call(sample: Tensor) -> Tensor:
        return model(sample, torch.tensor(500), text(1)).sample

    sample = noise(1, 4, 12, 14, seed=step).requires_grad_()
    output: Any = checkpoint(call, sample, use_reentrant=False) if again else call(sample)
    return output.square().mean()


def gradients(reduction: Any, steps: list[int], again: bool) -> list[Tensor]:
    """Of the sum of a loss in each step, in one backward pass."""
    model = mini_unet()
    patch, losses = todome.apply(model, reduction), []
    for step in steps:
        patch.at(step, 10)
        losses.append(loss_of(model, step, again))
    return list(torch.autograd.grad(torch.stack(losses).sum(), list(model.parameters())))


@pytest.mark.parametrize("steps", [[3], [3, 4]], ids=["one call", "two calls before one backward pass"])
@both
def test_what_is_computed_again_has_the_gradients_of_the_first_time(reduction: Any, steps: list[int]):
    expected = gradients(reduction, steps, False)
    if TORCH >= (2, 2) or len(steps) == 1:
        torch.testing.assert_close(gradients(reduction, steps, True), expected)
    else:
        with pytest.raises(RuntimeError, match=r"computes a call of the model again.*torch 2\.1"):
            gradients(reduction, steps, True)
