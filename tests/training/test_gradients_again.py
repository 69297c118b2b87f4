"""Gradients of calls that are computed again in a backward pass: right, or refused."""

from functools import partial
from typing import Any

import pytest
import torch
from learners import gradients, loss_of, unet_batch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint
from zoo import small_unet

import todome
from todome import Downsample, Merge

REDUCTIONS = [Downsample(factor=(2, 2)), Merge(ratio=(0.5, 0.5))]
over_reductions = pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda reduction: type(reduction).__name__)
over_kinds = pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])


def learner(reentrant: bool | None, training: bool) -> Any:
    unet = small_unet().train(training)
    if reentrant is not None:
        unet.enable_gradient_checkpointing(partial(checkpoint, use_reentrant=reentrant))
    return unet


def two_calls(unet: Any, reduction: Any) -> list[Tensor]:
    """Two calls in different steps before one backward pass."""
    patch = todome.apply(unet, reduction)
    losses = []
    for step in (3, 6):
        patch.at(step, 10)
        losses.append(loss_of(unet(**unet_batch())))
    patch.at(8, 10)
    return gradients(unet, losses)


def one_call_at_a_time(unet: Any, reduction: Any) -> list[Tensor]:
    patch = todome.apply(unet, reduction)
    found = []
    for step in (3, 6):
        patch.at(step, 10)
        found += gradients(unet, [loss_of(unet(**unet_batch()))])
    return found


@over_reductions
@over_kinds
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_two_calls_before_one_backward_pass(reduction: Any, reentrant: bool, training: bool):
    plain = two_calls(learner(None, training), reduction)
    torch.testing.assert_close(two_calls(learner(reentrant, training), reduction), plain, rtol=1e-3, atol=1e-4)


def copies() -> saved_tensors_hooks:
    """What save_on_cpu does on a GPU: what comes back is a copy."""
    return saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor)


@over_reductions
@over_kinds
def test_copied_inputs_of_one_call_are_right(reduction: Any, reentrant: bool):
    plain = one_call_at_a_time(learner(None, True), reduction)
    with copies():
        again = one_call_at_a_time(learner(reentrant, True), reduction)
    torch.testing.assert_close(again, plain, rtol=1e-3, atol=1e-4)


@over_reductions
@over_kinds
def test_copied_inputs_of_two_calls_are_refused(reduction: Any, reentrant: bool):
    with copies(), pytest.raises(RuntimeError, match="cannot be told from another one"):
        two_calls(learner(reentrant, True), reduction)


def test_one_input_in_two_steps_that_are_both_computed_again_is_refused():
    unet = small_unet()
    patch = todome.apply(unet, Downsample(factor=2))
    batch, losses = unet_batch(), []
    for step in (3, 6):
        patch.at(step, 10)
        losses.append(loss_of(checkpoint(unet, **batch, use_reentrant=False)))
    with pytest.raises(RuntimeError, match="cannot be told from another one"):
        gradients(unet, losses)


def test_a_picture_drawn_before_does_not_disturb_training():
    unet = learner(False, True)
    patch = todome.apply(unet, Downsample(factor=2))
    batch = unet_batch()
    for step in range(4):
        patch.at(step, 10)
        with torch.no_grad():
            unet(**batch)
    patch.at(7, 10)
    again = gradients(unet, [loss_of(checkpoint(unet, **batch, use_reentrant=False))])
    plain = learner(None, True)
    todome.apply(plain, Downsample(factor=2)).at(7, 10)
    torch.testing.assert_close(again, gradients(plain, [loss_of(plain(**batch))]), rtol=1e-3, atol=1e-4)


def test_latents_keep_no_patch_alive():
    import gc
    import weakref

    unet, batch = small_unet(), unet_batch()
    patch = todome.apply(unet, Downsample(factor=2))
    unet(**batch)
    ghost = weakref.ref(patch.clock)
    patch.remove()
    del patch
    gc.collect()
    assert ghost() is None
    assert batch["sample"].requires_grad
