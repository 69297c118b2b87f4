"""A compiled UNet in training: one graph for all steps, with the gradients of eager code."""

from functools import partial
from typing import Any

import pytest
import torch
from learners import ODD, gradients, loss_of, unet_batch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from zoo import mini_unet

import todome
from todome import Downsample, Merge

# What torch says while it compiles, with or without todome.
pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings(
        "ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning",
        "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning",
        "ignore:The .grad attribute of a Tensor that is not a leaf Tensor:UserWarning",
    ),
]


@pytest.fixture
def counter() -> CompileCounterWithBackend:
    """Its partitioner computes again in the backward pass what is cheap, as that of inductor does."""
    return CompileCounterWithBackend("aot_eager_decomp_partition")


close = partial(torch.testing.assert_close, rtol=1e-3, atol=1e-4)


def learner(reduction: Any, layers: int = 1) -> tuple[Any, todome.Patch]:
    unet = mini_unet(transformer_layers_per_block=layers).train()
    unet.enable_gradient_checkpointing()
    return unet, todome.apply(unet, reduction)


def one_after_the_other(model: Any, patch: todome.Patch, at_once: int = 1) -> list[Tensor]:
    """Calls in two steps. Where both come before one backward pass, the clock has moved on by then."""
    found, losses = [], []
    for step in range(0, 4, 2):
        patch.at(step, 10)
        losses.append(loss_of(model(**unet_batch(grid=ODD))))
        if len(losses) == at_once:
            patch.at(step + at_once - 1, 10)
            found += gradients(model, losses)
            losses = []
    return found


def both_ways(model: Any, patch: todome.Patch) -> list[Tensor]:
    return one_after_the_other(model, patch) + one_after_the_other(model, patch, at_once=2)


@pytest.mark.thorough
def test_training_is_one_graph_and_equal_to_eager(counter: Any):
    eager = both_ways(*learner(Downsample(factor=2), layers=2))
    model, patch = learner(Downsample(factor=2), layers=2)
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled = both_ways(torch.compile(model, fullgraph=True, backend=counter), patch)
    assert counter.frame_count == 1
    close(compiled, eager)


@pytest.mark.thorough
def test_merging_with_checkpoints_is_right_in_several_graphs():
    """torch.compile hands nothing but arguments through a checkpoint, and a matching is none."""
    eager = both_ways(*learner(Merge()))
    model, patch = learner(Merge())
    close(both_ways(torch.compile(model, backend="eager"), patch), eager)


@pytest.mark.thorough
def test_compiled_blocks(counter: Any):
    eager = one_after_the_other(*learner(Downsample(factor=2)))
    model, patch = learner(Downsample(factor=2))
    model.compile_repeated_blocks(fullgraph=True, backend=counter)
    close(one_after_the_other(model, patch), eager)
