"""One step of learning: the loss of a batch, and a step of the optimiser. Nothing here knows of files or processes."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .latents import Batch

PREDICTIONS = ("epsilon", "v_prediction")
MAX_NORM = 1.0  # of the gradient, which is clipped beyond
DTYPES = {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def loss_of(unet: nn.Module, schedule: Any, batch: Batch, generator: torch.Generator) -> Tensor:
    """The squared error of what the UNet predicts: the noise (arXiv 2006.11239), or the velocity (arXiv 2202.00512).

    Args:
        unet: A UNet2DConditionModel of diffusers, or what is wrapped around one.
        schedule: A DDPMScheduler with the betas and the prediction type the model was trained with.
        batch: Latents, text and what else the UNet takes, on its device.
        generator: Generator of the noise and the timesteps; of the CPU, so that every device learns from the same.
    """
    latents = batch.latents
    noise = torch.randn(latents.shape, generator=generator).to(latents)
    timesteps = torch.randint(schedule.config.num_train_timesteps, (len(latents),), generator=generator)
    timesteps = timesteps.to(latents.device)
    noisy = schedule.add_noise(latents, noise, timesteps)
    is_noise = schedule.config.prediction_type == "epsilon"
    wanted = noise if is_noise else schedule.get_velocity(latents, noise, timesteps)
    added = {"added_cond_kwargs": batch.added} if batch.added else {}
    predicted = unet(noisy, timesteps, batch.text, return_dict=False, **added)[0]
    return F.mse_loss(predicted.float(), wanted.float())


def train_step(
    unet: nn.Module,
    schedule: Any,
    optimiser: torch.optim.Optimizer,
    batches: Sequence[tuple[Batch, torch.Generator]],
    *,
    precision: str = "no",
    scaler: Any = None,
) -> Tensor:
    """One step of the optimiser from the mean loss of some batches, which is returned.

    Args:
        unet: UNet whose trainable parameters the optimiser has; in DistributedDataParallel, gradients are averaged
            once.
        schedule: As for `loss_of`.
        optimiser: Optimiser of the parameters that learn.
        batches: Batches, each with a generator of its own.
        precision: Format in which autocast computes: "no", "fp16" or "bf16".
        scaler: A `torch.amp.GradScaler`, which fp16 needs.
    """
    scaler = scaler or torch.amp.GradScaler(enabled=False)
    losses = []
    for number, (batch, generator) in enumerate(batches, start=1):
        autocast = torch.autocast(batch.latents.device.type, DTYPES[precision], enabled=precision != "no")
        with nullcontext() if number == len(batches) else without_synchronisation(unet):
            with autocast:
                loss = loss_of(unet, schedule, batch, generator) / len(batches)
            scaler.scale(loss).backward()
        losses.append(loss.detach())
    scaler.unscale_(optimiser)
    nn.utils.clip_grad_norm_([p for group in optimiser.param_groups for p in group["params"]], MAX_NORM)
    scaler.step(optimiser)
    scaler.update()
    optimiser.zero_grad(set_to_none=True)
    return torch.stack(losses).sum()


def without_synchronisation(unet: Any) -> AbstractContextManager[None]:
    """No averaging of gradients over processes: they need to agree only when the last batch has added to them."""
    return unet.no_sync() if hasattr(unet, "no_sync") else nullcontext()
