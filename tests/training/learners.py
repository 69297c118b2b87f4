"""Models as they are trained, each with its own way of checkpointing, and the gradients of their losses."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import kohya_double
import pytest
import torch
from peft import LoraConfig
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from zoo import lively, noise, small_unet, text

from todome import Downsample, Merge

KEYS = Downsample(factor=(2, 1.5))
MERGED = Merge(ratio=(0.5, 0.3), cross_attention=True, feed_forward=True)
over_reductions = pytest.mark.parametrize("reduction", [KEYS, MERGED], ids=["keys", "merged"])
Grid = tuple[int, int]
GRID, ODD = (12, 8), (9, 11)


def unet_batch(batch: int = 2, grid: Grid = GRID) -> dict[str, Any]:
    """A timestep for every picture, as in any training; reentrant checkpointing wants gradients to go on."""
    latents, timesteps = noise(batch, 4, *grid).requires_grad_(), torch.linspace(10, 990, batch).long()
    return {"sample": latents, "timestep": timesteps, "encoder_hidden_states": text(batch)}


def sdxl_batch(batch: int = 2, grid: Grid = GRID) -> dict[str, Any]:
    """Attention begins at half the size."""
    latents, timesteps, words = unet_batch(batch, (grid[0] * 2, grid[1] * 2)).values()
    return {"x": latents, "timesteps": timesteps, "context": words, "y": noise(batch, 6)}


class Learner(NamedTuple):
    """A model to train, plain or with checkpoints, and what a batch for it looks like."""

    name: str
    build: Callable[[bool], Any]
    batch: Callable[..., dict[str, Any]]


def with_switch(build: Callable[[], Any], checkpointed: bool, *how: Any) -> Any:
    model = build().train()
    if checkpointed:
        model.enable_gradient_checkpointing(*how)
    return model


class WholeAgain(nn.Module):
    """Every call of the model is computed again, as in training through a whole run of sampling."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **batch: Any) -> Any:
        return checkpoint(self.model, **batch, use_reentrant=False)


DIFFUSERS = Learner("diffusers", partial(with_switch, small_unet), unet_batch)
WHOLE = Learner("whole-model", lambda again: WholeAgain(small_unet()) if again else small_unet(), unet_batch)
SD = Learner("kohya-sd", partial(with_switch, partial(lively, kohya_double.UNet2DConditionModel)), unet_batch)
SDXL = Learner("kohya-sdxl", partial(with_switch, partial(lively, kohya_double.SdxlUNet2DConditionModel)), sdxl_batch)
OLDER = partial(checkpoint, use_reentrant=True)  # as diffusers' own was
REENTRANT = Learner("diffusers-reentrant", lambda again: with_switch(small_unet, again, OLDER), unet_batch)
over_learners = pytest.mark.parametrize("learner", [DIFFUSERS, WHOLE, SD, SDXL, REENTRANT], ids=lambda one: one.name)


def with_lora(unet: Any) -> Any:
    """Adapters that are not zero, in attention and around it, and everything else frozen."""
    unet.requires_grad_(False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        unet.add_adapter(LoraConfig(r=2, target_modules=["to_q", "to_k", "to_v", "to_out.0"], init_lora_weights=False))
    return unet


def loss_of(output: Any) -> Tensor:
    """Not a mean of squares alone: every output gets a gradient of its own."""
    output = getattr(output, "sample", output)
    return (output * noise(*output.shape)).sum() + output.square().mean()


def gradients(model: nn.Module, losses: Iterable[Tensor]) -> list[Tensor]:
    """Of all that is trained, after one backward pass over all losses. Reentrant checkpointing knows no other way."""
    model.zero_grad()
    torch.stack(list(losses)).sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
