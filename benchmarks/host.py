"""What a reduction costs the host: Python and the launch of kernels, per layer.

    python benchmarks/host.py --out benchmarks/results/host.json

An eager pipeline on a fast GPU waits for the host at small sizes, so this is what a reduction can lose there. Twenty
transformers with a few tokens each run on the CPU, where their arithmetic takes next to no time; every method runs once
per round, and what it takes beyond dense is divided by the number of layers. Needs diffusers and tomesd.
"""

import argparse
import contextlib
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from diffusers import ModelMixin, Transformer2DModel
from torch import Tensor, nn
from torch.utils.benchmark import Timer
from tqdm import trange

import todome
from todome.tools.machine import about
from todome.tools.measuring.peers import tomesd_patch
from todome.tools.measuring.runs import write_json
from todome.tools.timing import measuring, spread

CPU = torch.device("cpu")
LAYERS = 20


class TransformerChain(ModelMixin):
    """Transformers one after the other: nothing but what reductions put their hooks on."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        make = lambda: Transformer2DModel(2, 4, 8, norm_num_groups=4, cross_attention_dim=8)  # noqa: E731
        self.transformers = nn.ModuleList(make() for _ in range(layers))

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        for transformer in self.transformers:
            x = transformer(x, text, return_dict=False)[0]
        return x


def measure(layers: int, rounds: int, calls: int) -> dict[str, list[float]]:
    """Microseconds per layer of every method, round by round."""
    model = TransformerChain(layers).eval()
    x, text = torch.randn(2, 8, 8, 8), torch.randn(2, 4, 8)
    methods: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
        "dense": contextlib.nullcontext,
        "todome dithered": lambda: todome.apply(model, todome.Downsample(2)),
        "todome fixed (ToDo)": lambda: todome.apply(model, todome.Downsample(2, phase="fixed")),
        "todome Merge 0.5": lambda: todome.apply(model, todome.Merge(0.5, random=False)),
        "tomesd 0.5": lambda: tomesd_patch(model),
    }
    timer = Timer("model(x, text)", globals={"model": model, "x": x, "text": text})
    times: dict[str, list[float]] = {name: [] for name in methods}
    for _ in trange(rounds, unit="round"):
        for name, patched in methods.items():
            with patched():
                times[name].append(1e6 * timer.timeit(calls).mean / layers)
    return times


def summary(name: str, times: dict[str, list[float]]) -> dict[str, Any]:
    extra = [mine - dense for mine, dense in zip(times[name], times["dense"], strict=True)]
    middle, low, high = spread(extra)
    quartiles = [round(low, 1), round(high, 1)]
    us = round(statistics.median(times[name]), 1)
    return {"method": name, "us": us, "extra_us": round(middle, 1), "quartiles": quartiles}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--rounds", type=int, default=20, help="how often each method is measured")
    parser.add_argument("--calls", type=int, default=20, help="timed calls per method and round")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/host.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    with measuring():
        times = measure(options.layers, options.rounds, options.calls)
    rows = [summary(name, times) for name in times]
    command = f"benchmarks/host.py --layers {options.layers} --rounds {options.rounds} --calls {options.calls}"
    write_json(options.out, {"machine": about(CPU, "diffusers", "tomesd"), "command": command, "rows": rows})
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
