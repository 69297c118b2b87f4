"""What a reduction costs beyond the attention it saves: todome beside a bare slice, its bound, and its peers.

    python benchmarks/overhead.py --out benchmarks/results/overhead.json

Times one denoiser call (batch 2: one picture with guidance) in rounds, every method once per round, so that drift of
the machine hits all alike; dense runs first and last. `replay` is a CUDA graph, the GPU's own time; `eager` is what a
plain pipeline sees, bound by the launch of kernels at small sizes. `ms` is the median over the rounds, `ms_best` the
best of them, which is what a quiet machine gives. Random weights; needs diffusers and tomesd.

On a machine without a GPU there is eager alone, and a small model to try the script with:

    python benchmarks/overhead.py --models small --sizes 512 --rounds 2 --calls 1 --out overhead-try.json
"""

import argparse
import contextlib
import gc
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

import todome
from todome.tools.machine import about
from todome.tools.measuring.peers import Tomesd
from todome.tools.measuring.runs import write_json
from todome.tools.measuring.subjects import ARCHITECTURES, DenoiserCall, random_inputs, random_unet
from todome.tools.timing import captured, measuring, peak_mib, spread, timed

FACTORS = {512: 2, 768: 2, 1024: 2, 1536: 3, 2048: 4}
FIRST_LEVEL = {"sd15": (("down_blocks.0", "up_blocks.3"), 8), "sdxl": (("down_blocks.1", "up_blocks.1"), 16)}
FIRST_LEVEL["small"] = FIRST_LEVEL["sd15"]
SHAPES = {**ARCHITECTURES, "small": {**ARCHITECTURES["sd15"], "block_out_channels": (32, 32, 32, 32)}}


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


@contextlib.contextmanager
def few_keys(unet: Any, shape: str, rows: Callable[[Tensor], Tensor]) -> Iterator[None]:
    before = unet.attn_processors
    stages, _ = FIRST_LEVEL[shape]
    chosen = [name for name in before if name.startswith(stages) and "attn1" in name]
    unet.set_attn_processor({name: FewKeys(rows) if name in chosen else old for name, old in before.items()})
    try:
        yield
    finally:
        unet.set_attn_processor(before)


def methods(unet: Any, shape: str, px: int) -> dict[str, Callable[[], contextlib.AbstractContextManager[Any]]]:
    factor, side = FACTORS[px], px // FIRST_LEVEL[shape][1]

    def sliced(x: Tensor) -> Tensor:
        return x.unflatten(1, (side, side))[:, ::factor, ::factor].flatten(1, 2)

    return {
        "dense": contextlib.nullcontext,
        "todome dithered": lambda: todome.apply(unet, todome.Downsample(factor)),
        "todome fixed (ToDo)": lambda: todome.apply(unet, todome.Downsample(factor, phase="fixed")),
        "bare slice": lambda: few_keys(unet, shape, sliced),
        "bound: 8 keys": lambda: few_keys(unet, shape, lambda x: x[:, :8]),
        "todome Merge 0.5": lambda: todome.apply(unet, todome.Merge(0.5)),
        "tomesd 0.5": lambda: Tomesd(0.5).on(unet),
        "dense again": contextlib.nullcontext,
    }


def milliseconds(call: Callable[[], Any], device: torch.device, calls: int) -> float:
    """The median time of some calls, after one that is not timed."""
    return statistics.median(timed(call, device, calls + 1)[1:])


def measure(shape: str, px: int, options: argparse.Namespace, bar: tqdm) -> list[dict[str, Any]]:
    """The rows of one model at one size."""
    gc.collect()
    device = options.device
    unet = random_unet(SHAPES[shape], device, torch.float16 if device.type == "cuda" else torch.float32)
    call = DenoiserCall(unet, *random_inputs(unet, (px, px), options.batch))
    known = methods(unet, shape, px)
    times: dict[tuple[str, str], list[float]] = {(mode, name): [] for mode in options.modes for name in known}
    peaks, replays, patches = {}, {}, []
    for name, patched in known.items():
        with patched() as patch:
            patches.append(patch)  # a graph reads its tables, so they must live as long
            milliseconds(call, device, options.calls)
            peaks[name] = peak_mib(call, device)
            if "replay" in options.modes:
                replays[name] = captured(call)
    for _ in range(rounds_at(px, options.rounds)):
        for name, patched in known.items():
            if "eager" in options.modes:
                with patched():
                    times["eager", name].append(milliseconds(call, device, options.calls))
            if "replay" in options.modes:
                times["replay", name].append(milliseconds(replays[name], device, options.calls))
        bar.update()
    case = {"model": shape, "px": px, "batch": options.batch, "factor": FACTORS[px]}
    memory = {name: peak and round(peak, 1) for name, peak in peaks.items()}
    return [{**case, **summary(mode, name, times), "peak_mib": memory[name]} for mode, name in times]


def rounds_at(px: int, rounds: int) -> int:
    """Large pictures take long and hardly vary."""
    return rounds if px <= 1024 else min(rounds, max(3, rounds // 3))


def summary(mode: str, name: str, times: dict[tuple[str, str], list[float]]) -> dict[str, Any]:
    """Speed-ups are compared within each round: the clock of a CPU drifts by more than a reduction costs."""
    first, last, mine = times[mode, "dense"], times[mode, "dense again"], times[mode, name]
    speedups = [(a + b) / 2 / c for a, b, c in zip(first, last, mine, strict=True)]
    middle, low, high = spread(speedups)
    return {
        "mode": mode,
        "method": name,
        "ms": round(statistics.median(mine), 3),
        "speedup": round(middle, 3),
        "speedup_quartiles": [round(low, 3), round(high, 3)],
        "ms_best": round(min(mine), 3),
        "speedup_best": round(min(*first, *last) / min(mine), 3),  # the best of each
    }


def show(rows: list[dict[str, Any]]) -> None:
    for mode in dict.fromkeys(row["mode"] for row in rows):
        table = Table("model", "px", *dict.fromkeys(row["method"] for row in rows), title=f"{mode}: ms (speed-up)")
        for shape, px in dict.fromkeys((row["model"], row["px"]) for row in rows):
            cells = [r for r in rows if (r["model"], r["px"], r["mode"]) == (shape, px, mode)]
            table.add_row(shape, str(px), *(f"{r['ms']:.2f} ({r['speedup']:.3f})" for r in cells))
        Console(width=200).print(table)


def save(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """After every case: an interrupted run keeps what it has."""
    wanted = {name: getattr(options, name) for name in ("models", "sizes", "modes", "batch", "rounds", "calls")}
    words = [f"--{name} {' '.join(map(str, v)) if isinstance(v, list) else v}" for name, v in wanted.items()]
    command = f"benchmarks/overhead.py {' '.join(words)}"
    write_json(options.out, {"machine": about(options.device, "diffusers", "tomesd"), "command": command, "rows": rows})


def parsed_options() -> argparse.Namespace:
    cuda = torch.cuda.is_available()
    modes = ["replay", "eager"] if cuda else ["eager"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=FIRST_LEVEL, default=["sd15", "sdxl"])
    parser.add_argument("--sizes", nargs="+", type=int, choices=FACTORS, default=list(FACTORS), help="in pixels")
    parser.add_argument("--modes", nargs="+", choices=["replay", "eager"], default=modes, help="replay needs a GPU")
    parser.add_argument("--batch", type=int, default=2, help="latents of a call: two are one picture with guidance")
    parser.add_argument("--rounds", type=int, default=12, help="how often each method is measured")
    parser.add_argument("--calls", type=int, default=4, help="timed calls per method and round")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/overhead.json"))
    options = parser.parse_args()
    options.device = torch.device("cuda" if cuda else "cpu")
    if "replay" in options.modes and not cuda:
        parser.error("--modes replay times CUDA graphs and needs a CUDA GPU: use --modes eager")
    return options


def main() -> None:
    options = parsed_options()
    torch.backends.cudnn.benchmark = True
    rows: list[dict[str, Any]] = []
    cases = [(model, px) for model in options.models for px in options.sizes]
    with measuring(), tqdm(total=sum(rounds_at(px, options.rounds) for _, px in cases), unit="round") as bar:
        for model, px in cases:
            bar.set_description(f"{model} {px} px")
            rows += measure(model, px, options, bar)
            save(options, rows)
    show(rows)


if __name__ == "__main__":
    main()
