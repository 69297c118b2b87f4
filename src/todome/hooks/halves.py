"""The two halves of a batch that classifier-free guidance is computed in, and what a model gives for it."""

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

WHOLE = {"ip_adapter_masks", "cross_attention_mask"}  # arguments whose first dimension is not the batch


def is_guided(latents: Tensor) -> bool:
    """Whether both halves of the latents are the same: one read from the device."""
    half, odd = divmod(len(latents), 2)
    return not odd and half > 0 and bool(torch.equal(latents[:half], latents[half:]))


def conditional_half(value: Any, batch: int) -> Any:
    """The second half of each tensor whose rows are those of the batch, or several for each of them."""
    if isinstance(value, Tensor):
        rows = len(value) if value.ndim else 0
        return value[rows // 2 :] if rows and rows % batch == 0 else value
    if isinstance(value, Mapping):
        return {key: part if key in WHOLE else conditional_half(part, batch) for key, part in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(conditional_half(part, batch) for part in value)
    return value


def denoised(latents: Tensor, output: Tensor) -> Tensor | None:
    """The part of a model's input that its output says something of: others stand behind it in the channels."""
    if latents.shape == output.shape:
        return latents
    channels = output.shape[1] if output.ndim > 1 else 0
    part = latents[:, :channels] if latents.ndim == 4 else latents
    return part if part.shape == output.shape else None


class Form(NamedTuple):
    """How a model hands over its output: the tensor, in a tuple, or as a field of a class."""

    kind: Any
    field: str

    def around(self, tensor: Tensor) -> Any:
        if self.kind is Tensor:
            return tensor
        return (tensor,) if self.kind is tuple else self.kind(**{self.field: tensor})


def output_of(output: Any) -> tuple[Tensor, Form] | None:
    """The one tensor of an output, and its form; None where it is something else."""
    if isinstance(output, Tensor):
        return output, Form(Tensor, "")
    if is_dataclass(output) and not isinstance(output, type):
        named = {name: value for name, value in vars(output).items() if value is not None}
        if len(named) == 1 and isinstance(value := next(iter(named.values())), Tensor):
            return value, Form(type(output), next(iter(named)))
        return None
    if isinstance(output, (tuple, list)) and len(output) == 1 and isinstance(output[0], Tensor):
        return output[0], Form(tuple, "")
    return None


def with_unconditional(conditional: Tensor, difference: Tensor, share: float) -> Tensor:
    """Both halves again, of the conditional one and the difference of their noises, in fp32."""
    exact = conditional.float()
    return torch.cat([exact - difference.float() / share, exact]).to(conditional.dtype)


Run = Callable[..., Any]
