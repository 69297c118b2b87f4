"""What a reduction costs beyond the attention it saves: todome beside a bare slice, its bound, and its peers.

    python benchmarks/overhead.py --out benchmarks/results/overhead.json

Two more methods for `todome.bench`, which times them beside the others: "bare:2" is an attention processor that slices
its keys and does nothing else, "bound:8" self-attention with 8 keys, which no reduction at this level can beat. Random
weights on a CUDA GPU; needs diffusers and tomesd. A command that was interrupted goes on.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speed import FACTORS, USUAL
from torch import Tensor
from torch.nn import functional as F

import todome
from todome.tools.measuring.peers import PEERS, SAME_STEPS, Peer, StepKind, finest_attention, unet_of
from todome.tools.measuring.subjects import open_subject


class FewKeys:
    """Self-attention over some rows of its input and nothing around it: the least a reduction of keys can cost."""

    def __init__(self, rows: Callable[[Tensor], Tensor]) -> None:
        self.rows = rows

    def __call__(self, attn: Any, hidden_states: Tensor, encoder_hidden_states=None, attention_mask=None) -> Tensor:
        kept = self.rows(hidden_states)
        q, k, v = attn.to_q(hidden_states), attn.to_k(kept), attn.to_v(kept)
        q, k, v = (t.unflatten(-1, (attn.heads, -1)).transpose(1, 2) for t in (q, k, v))
        x = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return attn.to_out[1](attn.to_out[0](x))


@contextmanager
def few_keys(unet: Any, rows: Callable[[Tensor], Tensor]) -> Iterator[Sequence[StepKind]]:
    """In the self-attention of level 1."""
    before, finest = unet.attn_processors, finest_attention(unet)
    stages = (f"down_blocks.{finest}.", f"up_blocks.{len(unet.up_blocks) - 1 - finest}.")
    chosen = [name for name in before if name.startswith(stages) and "attn1" in name]
    unet.set_attn_processor({name: FewKeys(rows) if name in chosen else old for name, old in before.items()})
    try:
        yield SAME_STEPS
    finally:
        unet.set_attn_processor(before)


@dataclass(frozen=True)
class BareSlice(Peer):
    factor: int = 2

    @contextmanager
    def on(self, target: Any) -> Iterator[Sequence[StepKind]]:
        def sliced(x: Tensor) -> Tensor:
            side = math.isqrt(x.shape[1])
            return x.unflatten(1, (side, side))[:, :: self.factor, :: self.factor].flatten(1, 2)

        with few_keys(unet_of(target), sliced) as kinds:
            yield kinds


@dataclass(frozen=True)
class Bound(Peer):
    keys: int = 8

    @contextmanager
    def on(self, target: Any) -> Iterator[Sequence[StepKind]]:
        with few_keys(unet_of(target), lambda x: x[:, : self.keys]) as kinds:
            yield kinds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["sd15", "sdxl"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[int(px) for px in USUAL], help="in pixels")
    parser.add_argument("--modes", nargs="+", default=["cuda-graph"])
    parser.add_argument("--rounds", type=int, default=7, help="how often each method is measured")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    PEERS.update(bare=BareSlice, bound=Bound)
    for model in options.models:
        target = open_subject(model)
        for px in options.sizes:
            factor = FACTORS.get(px, 2)
            methods = [f"todome:{factor}", f"todo:{factor}", f"bare:{factor}", "bound:8", "tome:0.5", "tomesd:0.5"]
            measured = {"modes": options.modes, "rounds": options.rounds, "seconds": 0.15}
            todome.bench(target, [(px, px)], methods, **measured, out=options.out, name=model, progress=True)


if __name__ == "__main__":
    main()
