"""How the networks learn: Muon for matrices, and one step of any optimisers."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan's coefficients: they bring singular values near 1 in five rounds


class Muon(torch.optim.Optimizer):
    """Momentum whose steps are made orthogonal, so that a matrix learns in all directions at the same pace.

    By Keller Jordan (https://kellerjordan.github.io/posts/muon/); steps are as long as AdamW's (Liu et al., arXiv
    2502.16982), whose rates therefore fit. A convolution is a matrix (outputs, inputs * height * width). torch has a
    Muon as well, which knows no convolutions and takes matrices one by one, in thousands of tiny kernels; here those
    of a shape go together.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, weight_decay: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[parameter.shape].append(parameter)
            for parameters in alike.values():
                self.move(parameters, group["lr"], group["weight_decay"], group["momentum"])

    def move(self, parameters: list[Tensor], rate: float, decay: float, momentum: float) -> None:
        """A step of parameters of one shape."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        averages = [self.average(parameter) for parameter in parameters]
        torch._foreach_lerp_(averages, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, averages, momentum)  # Nesterov's
        steps = orthogonal(torch.stack([matrix.flatten(1) for matrix in ahead]))  # (N, rows, columns)
        length = 0.2 * max(steps.shape[1:]) ** 0.5
        torch._foreach_mul_(parameters, 1 - rate * decay)
        torch._foreach_add_(parameters, list(steps.view(-1, *parameters[0].shape)), alpha=-rate * length)

    def average(self, parameter: Tensor) -> Tensor:
        """Of the gradients so far."""
        state = self.state[parameter]
        if not state:
            state["average"] = torch.zeros_like(parameter)
        return state["average"]


def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest matrices with singular values about 1, by Newton and Schulz's iteration, of (N, rows, columns)."""
    x = matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    linear, cubic, quintic = QUINTIC
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic), x, beta=linear)
    return (x.mT if tall else x).to(matrices.dtype).contiguous()


def take_step(optimisers: Sequence[torch.optim.Optimizer], loss: Tensor, share: float) -> None:
    """A step against the gradient of the loss, whose length is clipped to 1, at a share of each one's full rate."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = share * optimiser.defaults["lr"]
        optimiser.zero_grad(set_to_none=True)
    loss.backward()
    groups = [group for optimiser in optimisers for group in optimiser.param_groups]
    nn.utils.clip_grad_norm_([parameter for group in groups for parameter in group["params"]], 1.0)
    for optimiser in optimisers:
        optimiser.step()
