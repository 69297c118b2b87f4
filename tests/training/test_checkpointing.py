"""Gradient checkpointing makes the same choice again, whatever was called in between, or is refused."""

import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from learners import (
    DIFFUSERS,
    KEYS,
    MERGED,
    WHOLE,
    Learner,
    gradients,
    loss_of,
    over_learners,
    over_reductions,
    unet_batch,
    with_switch,
)
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint
from zoo import small_unet

import todome
from todome import Downsample

# Of reentrant checkpointing in a call without gradients.
pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True:UserWarning")
CANNOT_TELL = "cannot be told from another one"


def losses_in(learner: Learner, model: Any, patch: todome.Patch, *steps: int) -> list[Tensor]:
    """A call in each of these steps of ten."""
    losses = []
    for step in steps:
        patch.at(step, 10)
        losses.append(loss_of(model(**learner.batch())))
    return losses


def busy(learner: Learner, model: Any, patch: todome.Patch) -> list[Tensor]:
    """Two forward passes before one backward pass, others of another size without gradients between, and a clock that
    has moved on."""
    losses = []
    for step in (3, 6):
        losses += losses_in(learner, model, patch, step)
        patch.at(step + 1, 10)
        with torch.no_grad():
            model(**learner.batch(grid=(8, 16)))
    return gradients(model, losses)


def counted(learner: Learner, model: Any, patch: todome.Patch) -> list[Tensor]:
    """Nobody drives the clock, so that every call of the model is a step; the computing again is none."""
    found = []
    for _ in range(2):
        losses = [loss_of(model(**learner.batch())) for _ in range(2)]
        found += gradients(model, losses)
    return found


def closing(learner: Learner, model: Any, patch: todome.Patch) -> list[Tensor]:
    """The window closes before the backward pass: reduced, then dense."""
    return gradients(model, losses_in(learner, model, patch, 4, 5))


@over_learners
@pytest.mark.parametrize(
    ("steps", "reduction"),
    [(busy, KEYS), (busy, MERGED), (counted, KEYS), (closing, Downsample(factor=2, stop=0.5))],
    ids=["busy-keys", "busy-merged", "counted", "closing"],
)
def test_checkpoints_change_nothing(learner: Learner, steps: Callable[..., list[Tensor]], reduction: Any):
    found = []
    for checkpointed in (False, True):
        model = learner.build(checkpointed)
        patch = todome.apply(getattr(model, "model", model), reduction)
        found.append(steps(learner, model, patch))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


@over_reductions
@pytest.mark.parametrize("reentrant", [False, True])
def test_copied_inputs_are_right_for_one_call_and_refused_for_two(reduction: Any, reentrant: bool):
    """save_on_cpu makes copies on a GPU, and another storage holds them."""
    plain = small_unet().train()
    again = with_switch(small_unet, True, partial(checkpoint, use_reentrant=reentrant))
    expected = gradients(plain, losses_in(DIFFUSERS, plain, todome.apply(plain, reduction), 3))
    patch = todome.apply(again, reduction)
    with saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor):
        found = gradients(again, losses_in(DIFFUSERS, again, patch, 3))
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
        with pytest.raises(RuntimeError, match=CANNOT_TELL):
            gradients(again, losses_in(DIFFUSERS, again, patch, 4, 6))


def test_one_input_in_two_steps_that_are_both_computed_again_is_refused():
    unet, batch = WHOLE.build(True), unet_batch()
    patch = todome.apply(unet.model, KEYS)
    losses = losses_in(WHOLE._replace(batch=lambda: batch), unet, patch, 3, 6)
    with pytest.raises(RuntimeError, match=CANNOT_TELL):
        gradients(unet, losses)


def test_pictures_drawn_before_do_not_disturb_training():
    batch, found = unet_batch(), []
    for checkpointed in (False, True):
        unet = WHOLE.build(checkpointed)
        patch = todome.apply(getattr(unet, "model", unet), KEYS)
        with torch.no_grad():
            losses_in(DIFFUSERS._replace(batch=lambda: batch), unet, patch, 0, 1, 2)
        found.append(gradients(unet, losses_in(DIFFUSERS._replace(batch=lambda: batch), unet, patch, 7)))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


def test_latents_keep_no_patch_alive():
    unet, batch = small_unet(), unet_batch()
    patch = todome.apply(unet, KEYS)
    unet(**batch)
    ghost = weakref.ref(patch.shared)
    patch.remove()
    del patch
    gc.collect()
    assert ghost() is None
    assert batch["sample"].requires_grad
