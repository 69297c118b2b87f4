"""A compiled UNet in training: one graph for all steps, with the gradients of eager code."""

from collections.abc import Callable
from functools import partial
from typing import Any

import kohya_double
import pytest
import torch
from learners import gradients, loss_of, unet_batch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from zoo import lively, mini_unet

import todome
from todome import Downsample, Merge

UNEVEN = (9, 11)  # grids of whole cells need less of the turn
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


def diffusers_unet(layers: int = 1) -> Any:
    unet = mini_unet(transformer_layers_per_block=layers).train()
    unet.enable_gradient_checkpointing()
    return unet


def kohya_unet() -> Any:
    return lively(kohya_double.UNet2DConditionModel)


def learner(build: Callable[[], Any], reduction: Any) -> tuple[Any, todome.Patch]:
    unet = build()
    return unet, todome.apply(unet, reduction)


def one_after_the_other(model: Any, patch: todome.Patch) -> list[Tensor]:
    """An ordinary loop: forward, backward, next step."""
    found = []
    for step in range(2):
        patch.at(step, 10)
        found += gradients(model, [loss_of(model(**unet_batch(grid=UNEVEN)))])
    return found


def two_at_once(model: Any, patch: todome.Patch) -> list[Tensor]:
    """Two forward passes before one backward pass, and a clock that moves on in between."""
    losses = []
    for step in (3, 5):
        patch.at(step, 10)
        losses.append(loss_of(model(**unet_batch(grid=UNEVEN))))
    patch.at(6, 10)
    return gradients(model, losses)


def both_ways(model: Any, patch: todome.Patch) -> list[Tensor]:
    return one_after_the_other(model, patch) + two_at_once(model, patch)


def assert_equal(compiled: list[Tensor], eager: list[Tensor]) -> None:
    torch.testing.assert_close(compiled, eager, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("build", "reduction"),
    [(partial(diffusers_unet, layers=2), Downsample(factor=2)), (kohya_unet, Merge())],
    ids=["downsample-with-checkpoints", "merge"],
)
def test_training_is_one_graph_and_equal_to_eager(build: Callable[[], Any], reduction: Any, counter: Any):
    eager = both_ways(*learner(build, reduction))
    model, patch = learner(build, reduction)
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled = both_ways(torch.compile(model, fullgraph=True, backend=counter), patch)
    assert counter.frame_count == 1
    assert_equal(compiled, eager)


def test_merging_with_checkpoints_is_right_in_several_graphs():
    """torch.compile hands nothing but arguments through a checkpoint, and a matching is none."""
    eager = both_ways(*learner(diffusers_unet, Merge()))
    model, patch = learner(diffusers_unet, Merge())
    assert_equal(both_ways(torch.compile(model, backend="eager"), patch), eager)


def test_compiled_blocks(counter: Any):
    eager = one_after_the_other(*learner(diffusers_unet, Downsample(factor=2)))
    model, patch = learner(diffusers_unet, Downsample(factor=2))
    model.compile_repeated_blocks(fullgraph=True, backend=counter)
    assert_equal(one_after_the_other(model, patch), eager)


def called_with(gradient: Callable[[], Any]) -> todome.Patch:
    model, patch = learner(diffusers_unet, Downsample(factor=2))
    patch.at(3, 10)
    with gradient():
        model(**unet_batch())
    return patch


def graph_inputs(patch: todome.Patch) -> Any:
    (inputs,) = patch.clock.graph_inputs
    return inputs


def test_the_phase_of_graphs_is_never_overwritten_before_the_backward_pass():
    patch = called_with(torch.enable_grad)
    before = graph_inputs(patch).phase
    patch.at(4, 10)
    assert (before.item(), graph_inputs(patch).phase.item()) == (3, 4)


def test_a_captured_graph_is_never_left_behind():
    """It reads one place in memory for ever, whether gradients are on or not."""
    patch = called_with(torch.no_grad)
    inputs = graph_inputs(patch)
    before = inputs.phase
    inputs.captured = True
    inputs.begin_call(patch.clock.current_call(), torch.device("cpu"))
    patch.at(4, 10)
    assert inputs.phase is before
    assert before.item() == 4


def test_the_phase_of_graphs_stays_where_it_is_without_gradients():
    patch = called_with(torch.no_grad)
    before = graph_inputs(patch).phase
    patch.at(4, 10)
    assert graph_inputs(patch).phase is before
    assert before.item() == 4
