"""Mixed precision: reduced attention has the dtypes of the dense one, in the forward and in the backward pass."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from learners import REDUCTIONS, gradients, loss_of, unet_batch, with_lora
from naive import observed
from torch import Tensor
from zoo import small_unet

import todome

HALF = torch.bfloat16
over_reductions = pytest.mark.parametrize("reduction", [REDUCTIONS[0], REDUCTIONS[-1]], ids=str)


def dtypes(unet: Any) -> list[Any]:
    """Of what goes through every self-attention, of the output, and of the gradients."""
    with observed(unet) as seen, torch.autocast("cpu", HALF):
        output = unet(**unet_batch()).sample
    found = [tensor.dtype for layer in seen.values() for tensor in layer.values()]
    return [*found, output.dtype, *(gradient.dtype for gradient in gradients(unet, [loss_of(output)]))]


@over_reductions
def test_autocast_meets_the_dtypes_of_the_dense_model(reduction: Any):
    unet = with_lora(small_unet())
    dense = dtypes(unet)
    todome.apply(unet, reduction)
    assert dtypes(unet) == dense
    assert set(dense) == {HALF, torch.float32}


@over_reductions
def test_autocast_with_checkpoints_gives_the_same_gradients(reduction: Any):
    found = []
    for checkpointed in (False, True):
        unet = with_lora(small_unet()).train()
        if checkpointed:
            unet.enable_gradient_checkpointing()
        patch = todome.apply(unet, reduction)
        patch.at(3, 10)
        with torch.autocast("cpu", HALF):
            loss = loss_of(unet(**unet_batch()))
        patch.at(4, 10)
        found.append(gradients(unet, [loss]))
    assert all(torch.equal(plain, again) for plain, again in zip(*found, strict=True))


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    clear_accelerate()
    yield Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
    clear_accelerate()


def clear_accelerate() -> None:
    """Its settings are the process's, and other tests have others."""
    AcceleratorState._reset_state()
    PartialState._reset_state()


@over_reductions
def test_accelerate_prepares_a_reduced_model_before_or_after(reduction: Any, accelerator: Accelerator):
    def learnt(first: bool) -> list[Tensor]:
        unet = with_lora(small_unet())
        early = todome.apply(unet, reduction) if first else None
        optimiser = torch.optim.SGD([p for p in unet.parameters() if p.requires_grad], lr=0.01)
        prepared, optimiser = accelerator.prepare(unet, optimiser)
        patch = early or todome.apply(prepared, reduction)
        for micro_batch in range(4):
            patch.at(micro_batch // 2, 2)
            with accelerator.accumulate(prepared):
                accelerator.backward(prepared(**unet_batch()).sample.square().mean())
                optimiser.step()
                optimiser.zero_grad()
        return [p.detach() for p in accelerator.unwrap_model(prepared).parameters() if p.requires_grad]

    before, after = learnt(first=True), learnt(first=False)
    start = [p for p in with_lora(small_unet()).parameters() if p.requires_grad]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert not any(torch.equal(one, other) for one, other in zip(before, start, strict=True))
    assert all(p.dtype == torch.float32 for p in after)
