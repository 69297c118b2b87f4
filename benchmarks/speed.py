"""The speed of SD 1.5, SD 2.1 and SDXL with todome and its peers, at five sizes: `todome.bench` in one go.

    python benchmarks/speed.py --out benchmarks/results/speed.json

Random weights in fp16 on a CUDA GPU; needs diffusers, tomesd, ca-tome and DeepCache. Cases that the file holds already
are not measured again, so an interrupted run goes on.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

import todome
from todome.tools.measuring.subjects import ARCHITECTURES, open_subject

FACTORS = {512: 2, 768: 2, 1024: 2, 1536: 3, 2048: 4}
LARGE = 1024  # px, beyond which four pictures at once leave out what one at a time has shown
ROUNDS = {"eager": 3, "cuda-graph": 1, "compile": 1}  # the GPU's own time hardly varies


class Part(NamedTuple):
    """What one call of `todome.bench` measures."""

    px: int
    pictures: int
    mode: Any

    def methods(self) -> list[str]:
        """ca-tome merges all it can (-1): with random weights its threshold would decide by chance."""
        factor = FACTORS[self.px]
        todome, own = f"todome:{factor}", [f"todome:{factor}", f"todo:{factor}", f"todome:{factor},2"]
        if self.mode == "compile":
            return [todome]
        if self.pictures > 1 and self.px > LARGE:
            return [*own, "tome:0.5", "tomesd:0.5"]
        return [*own, "tome:0.5", "tomesd:0.5", "ca-tome:-1", "deepcache:3", f"{todome}+deepcache:3"]


def parts(options: argparse.Namespace) -> Iterator[Part]:
    """The GPU's own time first, then what an eager pipeline sees of a single picture."""
    for mode in options.modes:
        for pictures in options.batch if mode == "cuda-graph" else options.batch[:1]:
            yield from (Part(px, pictures, mode) for px in options.sizes)


def measure(model: str, options: argparse.Namespace, deadline: float) -> None:
    torch.manual_seed(0)
    unet = open_subject(model, "cuda", "float16")
    for part in parts(options):
        if time.monotonic() > deadline:
            return
        began = time.monotonic()
        todome.bench(
            unet,
            [(part.px, part.px)],
            part.methods(),
            pictures=[part.pictures],
            modes=[part.mode],
            rounds=ROUNDS[part.mode],
            seconds=options.seconds,
            out=options.out,
            name=model,
        )
        print(
            f"{model} {part.px} px, {part.pictures} at once, {part.mode}: {time.monotonic() - began:.1f} s", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES))
    parser.add_argument("--sizes", nargs="+", type=int, choices=FACTORS, default=list(FACTORS))
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 4], help="pictures at once; eager has the first")
    parser.add_argument("--modes", nargs="+", default=["cuda-graph", "eager"], choices=ROUNDS)
    parser.add_argument("--seconds", type=float, default=0.15, help="for how long each method is measured in a round")
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="begin nothing after so many seconds")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this benchmark times CUDA graphs and needs a CUDA GPU")
    deadline = time.monotonic() + options.stop_after
    for model in options.models:
        measure(model, options, deadline)


if __name__ == "__main__":
    main()
