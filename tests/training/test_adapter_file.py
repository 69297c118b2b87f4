"""Removing it leaves an ordinary LoRA: the same file as without todome, but for what was learnt."""

from pathlib import Path
from typing import Any

import pytest
import torch
from learners import loss_of, unet_batch, with_lora
from peft import get_peft_model_state_dict
from safetensors.torch import load_file
from torch import Tensor
from zoo import run, small_unet, unet_inputs

import todome
from todome import Downsample, Merge


def learn(unet: Any, patch: todome.Patch | None) -> None:
    """Two steps of an ordinary loop."""
    optimiser = torch.optim.SGD([p for p in unet.parameters() if p.requires_grad], lr=1e-3)
    for step in range(2):
        if patch is not None:
            patch.at(step, 2)
        loss_of(unet(**unet_batch())).backward()
        optimiser.step()
        optimiser.zero_grad()


def saved(unet: Any, folder: Path) -> dict[str, Tensor]:
    unet.save_lora_adapter(folder)
    return load_file(folder / "pytorch_lora_weights.safetensors")


def shapes(weights: dict[str, Tensor]) -> dict[str, Any]:
    return {name: (tuple(weight.shape), weight.dtype) for name, weight in weights.items()}


@pytest.mark.parametrize("reduction", [Downsample(factor=2), Merge()], ids=str)
def test_the_file_is_that_of_a_model_that_never_was_reduced(reduction: Any, tmp_path: Path):
    plain, reduced = with_lora(small_unet()), with_lora(small_unet())
    learn(plain, None)
    patch = todome.apply(reduced, reduction)
    learn(reduced, patch)
    during = get_peft_model_state_dict(reduced)
    patch.remove()
    after = get_peft_model_state_dict(reduced)
    assert shapes(during) == shapes(after) == shapes(get_peft_model_state_dict(plain))
    ours, theirs = saved(reduced, tmp_path / "ours"), saved(plain, tmp_path / "theirs")
    assert shapes(ours) == shapes(theirs)
    assert not any(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_file_works_in_a_model_that_never_heard_of_todome(tmp_path: Path):
    unet = with_lora(small_unet())
    with todome.apply(unet, Downsample(factor=2)) as patch:
        learn(unet, patch)
    saved(unet, tmp_path)
    fresh: Any = small_unet()
    fresh.load_lora_adapter(tmp_path, weight_name="pytorch_lora_weights.safetensors", prefix=None)
    torch.testing.assert_close(run(fresh, **unet_inputs()), run(unet, **unet_inputs()))
