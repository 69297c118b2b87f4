"""A clock that counts what attention computes instead of seconds: its times are the same on every machine."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

LEVEL_1, LEVEL_2 = 3, 4  # layers of small_unet


class AttentionClock:
    """Times of a UNet's calls: the pairs of queries and keys in its self-attention, and a millisecond for the rest."""

    def __init__(self, unet: nn.Module, pairs_per_ms: float) -> None:
        self.pairs_per_ms, self.pairs, self.queries = pairs_per_ms, 0, 0
        for name, module in unet.named_modules():
            if name.endswith("attn1"):
                module.get_submodule("to_q").register_forward_hook(self.note_queries)
                module.get_submodule("to_k").register_forward_hook(self.note_keys)

    def note_queries(self, _: nn.Module, args: Any, output: Tensor) -> None:
        self.queries = output.shape[1]

    def note_keys(self, _: nn.Module, args: Any, output: Tensor) -> None:
        self.pairs += self.queries * output.shape[1]

    def timed(self, call: Callable[[], Any], device: torch.device, calls: float) -> list[float]:
        """In place of `timing.timed` and of `timing.milliseconds`."""
        self.pairs = 0
        call()
        return [self.ms(self.pairs)] * max(1, int(calls))

    def ms(self, pairs: int) -> float:
        return 1 + pairs / self.pairs_per_ms
