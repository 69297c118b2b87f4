"""Gradient checkpointing makes the same choice again, whatever was called in between."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from learners import LEARNERS, REDUCTIONS, Learner, gradients, loss_of
from torch import Tensor
from zoo import recording

import todome
from todome import Downsample

# ldm's own checkpoint asks for autocast on a GPU, in the way of years ago.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:torch.get_autocast_gpu_dtype\(\) is deprecated:DeprecationWarning",
    r"ignore:`torch.cuda.amp.autocast\(args...\)` is deprecated:FutureWarning",
    r"ignore:User provided device_type of 'cuda', but CUDA is not available:UserWarning",
    r"ignore:None of the inputs have requires_grad=True:UserWarning",  # reentrant checkpointing without gradients
)
over_learners = pytest.mark.parametrize("learner", LEARNERS, ids=str)
DITHERED, *OTHERS, MERGED = REDUCTIONS


def busy_steps(learner: Learner, model: Any, patch: todome.Patch) -> list[Tensor]:
    """Two forward passes before one backward pass, others of another size without gradients between, and a clock that
    has moved on."""
    losses = []
    for step in (3, 6):
        patch.at(step, 10)
        losses.append(loss_of(model(**learner.batch())))
        patch.at(step + 1, 10)
        with torch.no_grad():
            model(**learner.batch(grid=(8, 16)))
    return gradients(model, losses)


def counted_steps(learner: Learner, model: Any, patch: todome.Patch) -> list[Tensor]:
    """Nobody drives the clock, so that every call of the model is a step; the computing again is none."""
    found = []
    for _ in range(2):
        losses = [loss_of(model(**learner.batch())) for _ in range(2)]
        found += gradients(model, losses)
    return found


def assert_checkpoints_change_nothing(learner: Learner, reduction: Any, steps: Callable[..., list[Tensor]]) -> None:
    found = []
    for checkpointed in (False, True):
        model = learner.build(checkpointed)
        patch = todome.apply(getattr(model, "model", model), reduction)
        found.append(steps(learner, model, patch))
    if learner.exact:
        assert all(torch.equal(plain, again) for plain, again in zip(*found, strict=True))
    else:
        torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)


@over_learners
@pytest.mark.parametrize("reduction", [DITHERED, MERGED], ids=str)
def test_other_calls_between_forward_and_backward(learner: Learner, reduction: Any):
    assert_checkpoints_change_nothing(learner, reduction, busy_steps)


@pytest.mark.parametrize("reduction", OTHERS, ids=str)
def test_other_phases_and_ratios(reduction: Any):
    assert_checkpoints_change_nothing(LEARNERS[0], reduction, busy_steps)


@over_learners
def test_every_call_is_a_step_but_none_that_is_computed_again(learner: Learner):
    assert_checkpoints_change_nothing(learner, DITHERED, counted_steps)


@over_learners
def test_a_window_that_closes_before_the_backward_pass(learner: Learner):
    def steps(learner: Learner, model: Any, patch: todome.Patch) -> list[Tensor]:
        losses = []
        for step in (4, 5):  # reduced, then dense
            patch.at(step, 10)
            losses.append(loss_of(model(**learner.batch())))
        return gradients(model, losses)

    assert_checkpoints_change_nothing(learner, Downsample(factor=2, stop=0.5), steps)


def test_another_choice_gives_other_gradients():
    """Or else the tests above could not fail."""
    model = LEARNERS[0].build(True)
    patch = todome.apply(model, DITHERED)
    found = []
    for step in (3, 4):
        patch.at(step, 10)
        found.append(gradients(model, [loss_of(model(**LEARNERS[0].batch()))]))
    relative = [(one - other).norm() / one.norm() for one, other in zip(*found, strict=True)]
    assert max(relative) > 0.1


def test_the_next_call_is_not_held_back_by_what_was_computed_again():
    learner = next(learner for learner in LEARNERS if learner.name == "whole-model")
    model = learner.build(True)
    patch = todome.apply(model.model, DITHERED)
    losses = []
    for step in (3, 6):
        patch.at(step, 10)
        losses.append(loss_of(model(**learner.batch())))
    with recording(model.model, patch) as record:
        gradients(model, losses)
        model(**learner.batch())
    assert len(record.rows) == 3
    assert record.rows[2] in record.rows[:2]
    assert record.rows[0] != record.rows[1]
