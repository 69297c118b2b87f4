"""The reduced layers written down as plainly as can be, for autograd: matrices, a softmax, and nothing of todome's.

Which tokens a patched model kept or merged is read off what goes through its attention.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def attend(attention: Any, x: Tensor, context: Tensor) -> Tensor:
    """x: (batch, queries, channels), context: (batch, keys, channels)."""
    q, k, v = (
        layer(tokens).unflatten(-1, (attention.heads, -1)).transpose(1, 2)  # (batch, heads, tokens, channels)
        for layer, tokens in ((attention.to_q, x), (attention.to_k, context), (attention.to_v, context))
    )
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return attention.to_out[0]((weights @ v).transpose(1, 2).flatten(2))


class KeptKeys(nn.Module):
    """Self-attention with some of its own rows as keys."""

    def __init__(self, attention: nn.Module, rows: Tensor) -> None:
        super().__init__()
        self.attention, self.rows = attention, rows

    def forward(self, hidden_states: Tensor, **_: Any) -> Tensor:
        return attend(self.attention, hidden_states, hidden_states[:, self.rows])


class MergedTokens(nn.Module):
    """A part of a block between two matrices: the mean of what is merged, and its copies."""

    def __init__(self, part: nn.Module, place: Tensor) -> None:
        super().__init__()
        self.part = part
        self.copies = F.one_hot(place).double()  # (batch, tokens, merged tokens)

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Tensor | None = None, **_: Any) -> Tensor:
        merged = self.copies.mT @ hidden_states / self.copies.sum(1).unsqueeze(-1)
        if not hasattr(self.part, "to_q"):
            return self.copies @ self.part(merged)
        return self.copies @ attend(
            self.part, merged, merged if encoder_hidden_states is None else encoder_hidden_states
        )


def same_rows(rows: Tensor, among: Tensor) -> Tensor:
    """Where among some rows each of these is found: (..., rows, channels) -> (..., rows)."""
    equal = (rows.unsqueeze(-2) == among.unsqueeze(-3)).all(-1)
    assert equal.any(-1).all()
    return equal.int().argmax(-1)


@contextmanager
def observed(unet: nn.Module) -> Iterator[dict[str, dict[str, Tensor]]]:
    """What goes into and comes out of every self-attention, and into its keys and out of its last layer, inside of
    whatever is hung there."""
    seen: dict[str, dict[str, Tensor]] = {}
    hung = []
    for name, attention in unet.named_modules():
        if name.endswith("attn1"):
            seen[name] = found = {}
            hung += [watch(found, "norm", unet.get_submodule(name.replace("attn1", "norm1")), out=True)]
            hung += [watch(found, "attention", attention, out=True)]
            hung += [watch(found, "keys", attention.get_submodule("to_k"), out=False)]
            hung += [watch(found, "inside", attention.get_submodule("to_out.0"), out=True)]
    yield seen
    for handle in hung:
        handle.remove()


def watch(found: dict[str, Tensor], name: str, module: nn.Module, out: bool) -> Any:
    if out:
        return module.register_forward_hook(lambda _, args, output: found.update({name: output.detach()}))
    return module.register_forward_pre_hook(lambda _, args: found.update({name: args[0].detach()}))


def write_down_kept(unet: nn.Module, seen: dict[str, dict[str, Tensor]]) -> None:
    """Puts the plain layer in the place of every self-attention whose keys were reduced."""
    for name, found in seen.items():
        if found["keys"].shape[1] < found["norm"].shape[1]:
            rows = same_rows(found["keys"], found["norm"])
            assert torch.equal(rows, rows[:1].expand_as(rows))  # the same for every picture
            unet.set_submodule(name, KeptKeys(unet.get_submodule(name), rows[0]))


def write_down_merged(unet: nn.Module, seen: dict[str, dict[str, Tensor]], parts: tuple[str, ...]) -> None:
    """The same for merging: tokens that come out as copies were merged."""
    for name, found in seen.items():
        if found["inside"].shape[1] < found["norm"].shape[1]:
            place = same_rows(found["attention"], found["inside"])
            for part in parts:
                here = name.replace("attn1", part)
                unet.set_submodule(here, MergedTokens(unet.get_submodule(here), place))
