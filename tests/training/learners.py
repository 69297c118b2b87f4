"""Models as they are trained, each with its own way of checkpointing, and the gradients of their losses."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import kohya_double
import torch
from peft import LoraConfig
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from zoo import ldm_unet, lively, noise, small_unet, text, unet_inputs

from todome import Downsample, Merge

REDUCTIONS = [
    *(Downsample(factor=(2, 1.5), phase=phase) for phase in ("dither", "random", "fixed")),
    Merge(ratio=(0.5, 0.3)),
    Merge(ratio=(0.5, 0.5), random=False, cross_attention=True, feed_forward=True),
]
Grid = tuple[int, int]
GRID = (12, 8)


def latents(batch: int = 2, grid: Grid = GRID) -> Tensor:
    return noise(batch, 4, *grid).requires_grad_()  # reentrant checkpointing wants gradients to go on


def timesteps(batch: int = 2) -> Tensor:
    """Another one for every picture, as in any training."""
    return torch.linspace(10, 990, batch).long()


def unet_batch(batch: int = 2, grid: Grid = GRID) -> dict[str, Any]:
    return unet_inputs(batch, grid) | {"sample": latents(batch, grid), "timestep": timesteps(batch)}


def sdxl_batch(batch: int = 2, grid: Grid = GRID) -> dict[str, Any]:
    """Attention begins at half the size."""
    large = latents(batch, (grid[0] * 2, grid[1] * 2))
    return {"x": large, "timesteps": timesteps(batch), "context": text(batch), "y": noise(batch, 6)}


def ldm_batch(batch: int = 2, grid: Grid = GRID) -> dict[str, Any]:
    return {"x": latents(batch, grid), "timesteps": timesteps(batch), "context": text(batch)}


@dataclass(frozen=True)
class Learner:
    """A model to train, plain or with checkpoints, and what a batch for it looks like."""

    name: str
    build: Callable[[bool], Any]
    batch: Callable[..., dict[str, Any]]
    exact: bool = True  # whether checkpointing adds up gradients in the same order

    def __str__(self) -> str:
        return self.name


def with_switch(build: Callable[[], Any], checkpointed: bool) -> Any:
    model = build().train()
    if checkpointed:
        model.enable_gradient_checkpointing()
    return model


def reentrant(checkpointed: bool) -> Any:
    """diffusers with the older kind of checkpointing, as in its own older versions."""
    model = small_unet().train()
    if checkpointed:
        model.enable_gradient_checkpointing(partial(checkpoint, use_reentrant=True))
    return model


class WholeAgain(nn.Module):
    """Every call of the model is computed again, as in training through a whole run of sampling."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **batch: Any) -> Any:
        return checkpoint(self.model, **batch, use_reentrant=False)


LEARNERS = [
    Learner("diffusers", partial(with_switch, small_unet), unet_batch),
    Learner("diffusers-reentrant", reentrant, unet_batch, exact=False),
    Learner("whole-model", lambda again: WholeAgain(small_unet()) if again else small_unet(), unet_batch),
    Learner("ldm", lambda again: ldm_unet(use_checkpoint=again).train(), ldm_batch, exact=False),
    Learner("kohya-sd", partial(with_switch, lambda: lively(kohya_double.UNet2DConditionModel)), unet_batch),
    Learner("kohya-sdxl", partial(with_switch, lambda: lively(kohya_double.SdxlUNet2DConditionModel)), sdxl_batch),
]


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
