"""The two halves of a batch that classifier-free guidance is computed in, and what a model gives for it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

WHOLE = {"ip_adapter_masks", "image_rotary_emb", "img_ids", "txt_ids"}  # arguments that have nothing for each row


def is_guided(latents: Tensor) -> bool:
    """Whether both halves of the latents are the same: one read from the device.

    Where the thirds are the same too it may be guidance in three parts, of whichever pictures: that is none of ours.
    """
    return in_equal_parts(latents, 2) and not in_equal_parts(latents, 3)


def in_equal_parts(latents: Tensor, count: int) -> bool:
    rows, rest = divmod(len(latents), count)
    return not rest and rows > 0 and bool(torch.equal(latents[rows:], latents[:-rows]))


def without_pictures(latents: Tensor, channels: tuple[int, int] | None) -> Tensor:
    """Latents without what stands behind them in the channels, of a model that takes more channels than it gives.

    A picture to begin from is left out in the unconditional half by some pipelines.
    """
    taken, given = channels or (0, 0)
    if given >= taken or taken not in latents.shape[1:]:
        return latents
    return latents.narrow(latents.shape.index(taken, 1), 0, given)


def rows_of(latents: Tensor) -> set[int]:
    """How many rows an argument can have: one for each of the latents, or for each of their frames."""
    frames = latents.shape[2] if latents.ndim == 5 else 1
    return {len(latents), len(latents) * frames}


def conditional_half(value: Any, rows: Collection[int]) -> Any:
    """The second half of each tensor with so many rows."""
    if isinstance(value, Tensor):
        return value[len(value) // 2 :] if value.ndim and len(value) in rows else value
    if isinstance(value, Mapping):
        return {key: part if key in WHOLE else conditional_half(part, rows) for key, part in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(conditional_half(part, rows) for part in value)
    return value


def denoised(latents: Tensor, output: Tensor) -> Tensor | None:
    """The part of a model's input that its output says something of.

    Pictures and masks stand behind it in the channels; variances stand behind the noise in the output, and are left
    to themselves by zeros.
    """
    if latents.ndim != output.ndim:
        return None
    differ = [dim for dim, pair in enumerate(zip(latents.shape, output.shape, strict=True)) if len(set(pair)) > 1]
    if not differ:
        return latents
    dim = differ[0]
    more = output.shape[dim] - latents.shape[dim]
    if len(differ) > 1 or not dim:
        return None
    if more < 0:
        return latents.narrow(dim, 0, output.shape[dim])
    return torch.cat([latents, latents.new_zeros(()).expand(output.shape).narrow(dim, 0, more)], dim)


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
