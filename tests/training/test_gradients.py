"""Gradients are those of the reduced forward pass, whatever else a loop of training does."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from learners import KEYS, MERGED, ODD, gradients, loss_of, over_reductions, unet_batch, with_lora
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch import Tensor
from torch.func import functional_call
from zoo import recorded, run, small_unet, unet_inputs

import todome
from todome import Downsample

PHASES = [Downsample(factor=(2, 1.5), phase=phase) for phase in ("dither", "random", "fixed")]


@pytest.mark.parametrize("reduction", [*PHASES, MERGED], ids=str)
def test_gradients_are_those_of_the_reduced_forward_pass(reduction: Any):
    """Of the latents and of the adapters, against differences of what comes out."""
    unet = with_lora(small_unet()).double()
    batch = {name: part.double() if part.is_floating_point() else part for name, part in unet_batch(grid=ODD).items()}
    sample = batch.pop("sample").detach().requires_grad_()
    learning = {name: weight for name, weight in unet.named_parameters() if weight.requires_grad}
    weights = {name: weight for name, weight in learning.items() if "down_blocks.0" in name and "attn1" in name}
    todome.apply(unet, reduction).at(5, 10)

    def loss(sample: Tensor, *values: Tensor) -> Tensor:
        parts = dict(zip(weights, values, strict=True))
        return loss_of(functional_call(unet, parts, (sample,), batch))

    assert torch.autograd.gradcheck(loss, (sample, *weights.values()), fast_mode=True)


def test_torch_func_differentiates_a_reduced_model():
    """Its tensors have no memory of their own to remember a choice with."""
    unet = small_unet()
    todome.apply(unet, KEYS).at(3, 10)
    batch = unet_batch()
    sample = batch.pop("sample").detach()
    found = torch.func.grad(lambda latents: loss_of(unet(latents, **batch)))(sample)
    sample.requires_grad_()
    loss_of(unet(sample, **batch)).backward()
    torch.testing.assert_close(found, sample.grad)


@over_reductions
@pytest.mark.parametrize("dropped", [slice(0, 1), slice(None)], ids=["one", "all"])
@pytest.mark.parametrize("instead", [0.0, 1.0], ids=["zeros", "empty-prompt"])
def test_guidance_dropout_is_the_affair_of_the_picture(reduction: Any, dropped: slice, instead: float):
    """Captions that are left out, as loops do for guidance, leave the other pictures of the batch alone."""
    unet, batch = with_lora(small_unet()), unet_batch()
    todome.apply(unet, reduction).at(3, 10)
    batch["encoder_hidden_states"][dropped] = instead * batch["encoder_hidden_states"][0, 0]

    def learnt(pictures: slice) -> list[Tensor]:
        found = unet(**{name: part[pictures] for name, part in batch.items()}).sample
        return gradients(unet, [found.square().sum()])

    alone = [first + second for first, second in zip(learnt(slice(0, 1)), learnt(slice(1, 2)), strict=True)]
    torch.testing.assert_close(learnt(slice(None)), alone, rtol=1e-3, atol=1e-3)


@over_reductions
def test_autocast_meets_the_dtypes_of_the_dense_model(reduction: Any):
    """In what goes into every layer of attention, in the output, and in the gradients."""
    unet, found = with_lora(small_unet()), []
    for reduced in (False, True):
        if reduced:
            todome.apply(unet, reduction)
        with recorded(unet, r"attn1\.") as seen, torch.autocast("cpu", torch.bfloat16):
            output = unet(**unet_batch()).sample
        inside = [tensor.dtype for calls in seen.values() for tensor in calls]
        found.append([*inside, output.dtype, *(one.dtype for one in gradients(unet, [loss_of(output)]))])
    assert found[0] == found[1]
    assert set(found[0]) == {torch.bfloat16, torch.float32}


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    """Its settings are the process's, and other tests have others."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield Accelerator(cpu=True, mixed_precision="bf16")
    AcceleratorState._reset_state(reset_partial_state=True)


def by_peft(unet: Any) -> Any:
    return get_peft_model(unet, LoraConfig(r=2, target_modules=["to_k", "to_v"], init_lora_weights=False))


@over_reductions
@pytest.mark.parametrize("how", ["accelerate", "diffusers", "peft"])
def test_before_or_after_what_is_put_around_a_model_makes_no_difference(reduction: Any, how: str, accelerator: Any):
    around = {"accelerate": accelerator.prepare, "diffusers": with_lora, "peft": by_peft}[how]
    found = []
    for first in (True, False):
        torch.manual_seed(0)
        unet = small_unet()
        early = todome.apply(unet, reduction) if first else None
        model = around(unet)
        patch = early or todome.apply(model, reduction)
        patch.at(3, 10)
        found.append(gradients(model, [loss_of(model(**unet_batch()))]))
    torch.testing.assert_close(*found, rtol=0, atol=0)
    assert any(gradient.any() for gradient in found[0])


@over_reductions
def test_the_file_works_in_a_model_that_never_heard_of_todome(reduction: Any, tmp_path: Any):
    unet = with_lora(small_unet())
    patch = todome.apply(unet, reduction)
    for step in range(2):
        patch.at(step, 2)
        loss_of(unet(**unet_batch())).backward()
    torch.optim.SGD([p for p in unet.parameters() if p.requires_grad], lr=1e-3).step()
    unet.save_lora_adapter(tmp_path / "during")
    patch.remove()
    unet.save_lora_adapter(tmp_path / "after")
    file = "pytorch_lora_weights.safetensors"
    during, after = (load_file(tmp_path / name / file) for name in ("during", "after"))
    torch.testing.assert_close(during, after, rtol=0, atol=0)
    fresh: Any = small_unet()
    fresh.load_lora_adapter(tmp_path / "during", weight_name=file, prefix=None)
    torch.testing.assert_close(run(fresh, **unet_inputs()), run(unet, **unet_inputs()))
