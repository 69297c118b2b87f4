"""One step of training, as both networks take it."""

import torch
from torch import Tensor


def take_step(optimiser: torch.optim.Optimizer, loss: Tensor, rate: float) -> None:
    """A step against the gradient of the loss, whose length is clipped to 1."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for group in optimiser.param_groups for p in group["params"]], 1.0)
    optimiser.step()
