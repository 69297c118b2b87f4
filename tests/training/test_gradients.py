"""Gradients are exactly those of the reduced forward pass: the same as autograd's through a naive one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from learners import REDUCTIONS, gradients, loss_of, unet_batch, with_lora
from naive import observed, write_down_kept, write_down_merged
from torch import Tensor
from zoo import small_unet

import todome
from todome import Merge

ODD = (9, 11)


def exact_batch() -> dict[str, Any]:
    batch = unet_batch(grid=ODD)
    words = batch["encoder_hidden_states"].double()
    return batch | {"sample": batch["sample"].detach().double().requires_grad_(), "encoder_hidden_states": words}


def learnt(unet: Any) -> list[Tensor]:
    """The loss, and the gradients of the adapters and of the latents."""
    batch = exact_batch()
    loss = loss_of(unet(**batch))
    return [loss.detach(), *gradients(unet, [loss]), batch["sample"].grad]


def lora_unet() -> Any:
    return with_lora(small_unet()).double()


def naively(unet: Any, reduction: Any, seen: dict[str, dict[str, Tensor]]) -> None:
    if isinstance(reduction, Merge):
        asked = {"attn1": reduction.attention, "attn2": reduction.cross_attention, "ff": reduction.feed_forward}
        write_down_merged(unet, seen, tuple(part for part, wanted in asked.items() if wanted))
    else:
        write_down_kept(unet, seen)


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
def test_gradients_are_those_of_a_naive_implementation(reduction: Any):
    unet = lora_unet()
    dense = learnt(unet)
    with todome.apply(unet, reduction) as patch:
        patch.at(5, 10)
        with observed(unet) as seen:
            reduced = learnt(unet)
    naively(unet, reduction, seen)
    torch.testing.assert_close(reduced, learnt(unet), rtol=1e-10, atol=1e-10)
    assert not any(torch.allclose(one, other, rtol=1e-3) for one, other in zip(reduced, dense, strict=True))


def by_peft(unet: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(unet, LoraConfig(r=2, target_modules=["to_k", "to_v"], init_lora_weights=False))


@pytest.mark.parametrize("adapted", [with_lora, by_peft])
def test_before_or_after_the_adapters_makes_no_difference(adapted: Callable[[Any], Any]):
    found = []
    for first in (False, True):
        torch.manual_seed(0)
        unet = small_unet()
        if first:
            todome.apply(unet, REDUCTIONS[0])
        unet = adapted(unet)
        if not first:
            todome.apply(unet, REDUCTIONS[0])
        found.append(gradients(unet, [loss_of(unet(**unet_batch()))]))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_torch_func_differentiates_a_reduced_model():
    """Its tensors have no memory of their own to remember a choice with."""
    unet = small_unet()
    todome.apply(unet, REDUCTIONS[0]).at(3, 10)
    batch = unet_batch()
    sample = batch.pop("sample").detach()
    found = torch.func.grad(lambda latents: loss_of(unet(latents, **batch)))(sample)
    sample.requires_grad_()
    loss_of(unet(sample, **batch)).backward()
    torch.testing.assert_close(found, sample.grad)
