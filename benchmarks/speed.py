"""The speed of SD 1.5, SD 2.1, SDXL, AnimateDiff and SVD with todome and its peers: `todome.bench` in one go.

    python benchmarks/speed.py --out benchmarks/results/speed.json

figures.py has the commands of the other files. Random weights in fp16 on a CUDA GPU; needs diffusers, tomesd, and for
the command above ca-tome and DeepCache. `math` is attention that fills memory with a matrix, `efficient` what xFormers
made of it: what machines without a flash kernel have. With `--bounds` there are two more methods: "bare:2" is an
attention processor that slices its keys and does nothing else, "bound:8" self-attention with 8 keys, which no reduction
at this level can beat. Cases that the file holds already are not measured again: an interrupted command goes on.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import todome
from todome.tools.commands.options import read_size
from todome.tools.measuring.peers import PEERS, SAME_STEPS, Peer, StepKind, finest_attention, unet_of
from todome.tools.measuring.subjects import ARCHITECTURES, open_subject
from todome.tools.pipelines import Size
from todome.tools.timing import MODES

FACTORS = {1536: 3, 2048: 4}  # by the longer side of a picture; 2 at smaller ones
SIZES = {"animatediff": ["512", "768"], "svd": ["1024x576"]}
USUAL = ["512", "768", "1024", "1536", "2048"]
LARGE = 1024  # px, beyond which four pictures at once leave out what one at a time has shown
ROUNDS = {"eager": 3}  # the GPU's own time hardly varies: 1
ATTENTION = {"flash": None, "math": SDPBackend.MATH, "efficient": SDPBackend.EFFICIENT_ATTENTION}


class Part(NamedTuple):
    """What one call of `todome.bench` measures."""

    model: str
    size: Size
    pictures: int
    mode: Any
    attention: str = "flash"
    bounds: bool = False

    @property
    def name(self) -> str:
        return self.model if self.attention == "flash" else f"{self.model}, {self.attention}"

    def methods(self) -> list[str]:
        """ca-tome merges all it can (-1): with random weights its threshold would decide by chance."""
        factor = FACTORS.get(max(self.size), 2)
        todome, own = f"todome:{factor}", [f"todome:{factor}", f"todo:{factor}", f"todome:{factor},2"]
        if "compile" in self.mode:
            return [todome]
        if self.bounds:
            return [todome, f"todo:{factor}", f"bare:{factor}", "bound:8", "tome:0.5", "tomesd:0.5"]
        if self.model in SIZES:
            return [*own, "tome:0.5"]  # tomesd takes the frames for the height, and divides by zero
        if self.attention != "flash" or (self.pictures > 1 and max(self.size) > LARGE):
            return [*own, "tome:0.5", "tomesd:0.5"]
        return [*own, "tome:0.5", "tomesd:0.5", "ca-tome:-1", "deepcache:3", f"{todome}+deepcache:3"]

    def kernel(self) -> AbstractContextManager[Any]:
        backend = ATTENTION[self.attention]
        return nullcontext() if backend is None else sdpa_kernel(backend)


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


def parts(model: str, options: argparse.Namespace) -> Iterator[Part]:
    """The GPU's own time first, then what an eager pipeline sees of a single picture or clip."""
    several = options.batch if model not in SIZES else options.batch[:1]
    for attention in options.attention:
        for mode in options.modes:
            for pictures in several if mode == "cuda-graph" else several[:1]:
                for text in options.sizes or SIZES.get(model, USUAL):
                    yield Part(model, read_size(text), pictures, mode, attention, options.bounds)


def measure(model: str, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    unet = open_subject(model)
    for part in parts(model, options):
        began = time.monotonic()
        with part.kernel():
            todome.bench(
                unet,
                [part.size],
                part.methods(),
                pictures=[part.pictures],
                modes=[part.mode],
                rounds=options.rounds or ROUNDS.get(part.mode, 1),
                seconds=options.seconds,
                out=options.out,
                name=part.name,
            )
        size = "x".join(map(str, part.size))
        print(f"{part.name} {size}, {part.pictures} at once, {part.mode}: {time.monotonic() - began:.1f} s", flush=True)


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [model for model in ARCHITECTURES if model not in SIZES]
    parser.add_argument("--models", nargs="+", default=usual, help="shapes, or folders of pipelines")
    parser.add_argument(
        "--sizes", nargs="+", metavar="PX", help="sides, or WIDTHxHEIGHT; each model has its usual ones"
    )
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 4], help="pictures at once; eager has the first")
    parser.add_argument("--modes", nargs="+", default=["cuda-graph", "eager"], choices=MODES)
    parser.add_argument("--attention", nargs="+", default=["flash"], choices=ATTENTION, help="which kernel it has")
    parser.add_argument("--bounds", action="store_true", help="what a reduction costs beyond the attention it saves")
    parser.add_argument("--rounds", type=int, help="how often each method is measured")
    parser.add_argument("--seconds", type=float, default=0.15, help="for how long each method is measured in a round")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    options = parsed_options()
    PEERS.update(bare=BareSlice, bound=Bound)
    for model in options.models:
        measure(model, options)


if __name__ == "__main__":
    main()
