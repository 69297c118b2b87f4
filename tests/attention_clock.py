"""A clock that counts what attention computes instead of seconds: its times are the same on every machine."""

from typing import Any

from torch import Tensor, nn

LEVEL_1, LEVEL_2 = 3, 4  # layers of small_unet


class AttentionClock:
    """Seconds that a UNet has worked, as the clock of a `Timing`: 1 ms a call, and the pairs of queries and keys."""

    def __init__(self, unet: nn.Module, pairs_per_ms: float) -> None:
        self.pairs_per_ms, self.ms, self.queries = pairs_per_ms, 0.0, 0
        unet.register_forward_hook(self.note_call)
        for name, module in unet.named_modules():
            if name.endswith("attn1"):
                module.get_submodule("to_q").register_forward_hook(self.note_queries)
                module.get_submodule("to_k").register_forward_hook(self.note_keys)

    def note_call(self, *_: Any) -> None:
        self.ms += 1

    def note_queries(self, _: nn.Module, args: Any, output: Tensor) -> None:
        self.queries = output.shape[1]

    def note_keys(self, _: nn.Module, args: Any, output: Tensor) -> None:
        self.ms += self.queries * output.shape[1] / self.pairs_per_ms

    def __call__(self) -> float:
        return self.ms / 1000
