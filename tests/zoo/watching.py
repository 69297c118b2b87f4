"""What goes into the attention of a model, seen from outside: no word of todome's is taken for it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from todome import Patch
from todome.hooks.tokens import TokenState

from .hosts import Host
from .models import model_of


def is_image_attention(name: str) -> bool:
    """Whether the attention of this name looks at the tokens of an image, in any host."""
    temporal = re.search(r"motion_modules|temp_attentions|temporal_transformer_blocks|transformer_in\.", name)
    return name.endswith("attn1") and temporal is None


@contextmanager
def recorded(target: Any, pattern: str) -> Iterator[dict[str, list[Tensor]]]:
    """What goes into the modules whose names match, by name: no word of todome's is taken for it."""
    found = {name: module for name, module in model_of(target).named_modules() if re.search(pattern, name)}
    seen: dict[str, list[Tensor]] = {name: [] for name in found}
    hooks = [
        module.register_forward_pre_hook(lambda _, args, to=seen[name]: to.append(args[0].detach().clone()))
        for name, module in found.items()
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def token_counts(host: Host, target: Any, pattern: str = r"\.to_k$") -> dict[str, int]:
    """How many tokens go into the modules whose names match; the keys of every attention, if not told otherwise."""
    with recorded(target, pattern) as seen:
        host.run(target)
    return {name.removesuffix(".to_k"): calls[-1].shape[1] for name, calls in seen.items()}


def image_keys(host: Host, target: Any) -> dict[str, int]:
    return {name: count for name, count in token_counts(host, target).items() if is_image_attention(name)}


class Record:
    """What a model's first self-attention saw, call by call."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []  # the tokens that were keys
        self.phases: list[int] = []
        self.queries = torch.empty(0)

    def note_queries(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.queries = args[0][0]

    def note_keys(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        keys = args[0][0]
        self.rows.append((keys[:, None] == self.queries).all(-1).int().argmax(1).tolist())

    @property
    def reduced(self) -> list[bool]:
        return [len(rows) < len(self.queries) for rows in self.rows]


def token_state(patch: Patch) -> TokenState:
    """What the hooks of the token lever share on the first model of a patch."""
    return patch._places[0].states[0]


def phase_of(patch: Patch) -> int:
    """The phase of the call that is being made."""
    return token_state(patch).current_call().phase_index


@contextmanager
def recording(unet: nn.Module, patch: Patch | None = None) -> Iterator[Record]:
    """Notes which tokens were keys, and the phase of the patch, at every call of the model."""
    record = Record()
    attention = next(m for name, m in unet.named_modules() if name.endswith("attn1"))
    hung = [
        attention.get_submodule("to_q").register_forward_pre_hook(record.note_queries),
        attention.get_submodule("to_k").register_forward_pre_hook(record.note_keys),
    ]
    if patch is not None:
        hung.append(attention.register_forward_hook(lambda *_: record.phases.append(phase_of(patch))))
    try:
        yield record
    finally:
        for handle in hung:
            handle.remove()
