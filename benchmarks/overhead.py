"""What a reduction costs beyond the attention it saves: todome beside a bare slice, its bound, and its peers.

    python benchmarks/overhead.py --out benchmarks/results/overhead.json

Times one denoiser call (batch 2: one picture with guidance) in rounds, every method once per round, so that drift of
the machine hits all alike; dense runs first and last. `replay` is a CUDA graph, the GPU's own time; `eager` is what a
plain pipeline sees, bound by the launch of kernels at small sizes. Random weights; needs diffusers and tomesd.
"""

import argparse
import contextlib
import gc
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tomesd
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

import todome
from todome.tools.measuring.machine import about
from todome.tools.measuring.runs import write_json
from todome.tools.measuring.subjects import ARCHITECTURES, Call, random_inputs, random_unet
from todome.tools.measuring.timing import captured, measuring, peak_mib, spread, timed

GPU = torch.device("cuda")
FACTORS = {512: 2, 768: 2, 1024: 2, 1536: 3, 2048: 4}
FIRST_LEVEL = {"sd15": (("down_blocks.0", "up_blocks.3"), 8), "sdxl": (("down_blocks.1", "up_blocks.1"), 16)}


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
    yield
    unet.set_attn_processor(before)


@contextlib.contextmanager
def peer_tomesd(unet: Any, shape: str) -> Iterator[None]:
    tomesd.apply_patch(unet, ratio=0.5, use_rand=False, max_downsample=FIRST_LEVEL[shape][1] // 8)
    yield
    tomesd.remove_patch(unet)


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
        "tomesd 0.5": lambda: peer_tomesd(unet, shape),
        "dense again": contextlib.nullcontext,
    }


def milliseconds(call: Callable[[], Any], calls: int) -> float:
    """The median time of some calls, after one that is not timed."""
    return statistics.median(timed(call, GPU, calls + 1)[1:])


def measure(shape: str, px: int, options: argparse.Namespace, bar: tqdm) -> list[dict[str, Any]]:
    gc.collect()
    unet = random_unet(ARCHITECTURES[shape], GPU, torch.float16)
    call = Call(unet, *random_inputs(unet, (px, px), options.batch))
    known = methods(unet, shape, px)
    times: dict[tuple[str, str], list[float]] = {(mode, name): [] for mode in ("replay", "eager") for name in known}
    peaks, replays, patches = {}, {}, []
    for name, patched in known.items():
        with patched() as patch:
            patches.append(patch)  # a graph reads its tables, so they must live as long
            milliseconds(call, 3)
            peaks[name] = peak_mib(call, GPU)
            replays[name] = captured(call)
    for _ in range(rounds_at(px, options.rounds)):
        for name, patched in known.items():
            with patched():
                times["eager", name].append(milliseconds(call, options.calls))
            times["replay", name].append(milliseconds(replays[name], options.calls))
        bar.update()
    case = {"model": shape, "px": px, "batch": options.batch, "factor": FACTORS[px]}
    return [{**case, **summary(mode, name, times), "peak_mib": round(peaks[name] or 0, 1)} for mode, name in times]


def rounds_at(px: int, rounds: int) -> int:
    """Large pictures take long and hardly vary."""
    return rounds if px <= 1024 else max(3, rounds // 3)


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
    }


def show(rows: list[dict[str, Any]]) -> None:
    for mode in ("replay", "eager"):
        table = Table("model", "px", *dict.fromkeys(row["method"] for row in rows), title=f"{mode}: ms (speed-up)")
        for shape, px in dict.fromkeys((row["model"], row["px"]) for row in rows):
            cells = [r for r in rows if (r["model"], r["px"], r["mode"]) == (shape, px, mode)]
            table.add_row(shape, str(px), *(f"{r['ms']:.2f} ({r['speedup']:.3f})" for r in cells))
        Console(width=200).print(table)


def save(path: Path, options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """After every case: an interrupted run keeps what it has."""
    command = f"benchmarks/overhead.py --batch {options.batch} --rounds {options.rounds} --calls {options.calls}"
    write_json(path, {"machine": about(GPU, "diffusers", "tomesd"), "command": command, "rows": rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=FIRST_LEVEL, default=list(FIRST_LEVEL))
    parser.add_argument("--sizes", nargs="+", type=int, choices=FACTORS, default=list(FACTORS))
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--calls", type=int, default=4, help="timed calls per method and round")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/overhead.json"))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this benchmark times CUDA graphs and needs a CUDA GPU")
    torch.backends.cudnn.benchmark = True
    rows: list[dict[str, Any]] = []
    cases = [(model, px) for model in options.models for px in options.sizes]
    with measuring(), tqdm(total=sum(rounds_at(px, options.rounds) for _, px in cases), unit="round") as bar:
        for model, px in cases:
            bar.set_description(f"{model} {px} px")
            rows += measure(model, px, options, bar)
            save(options.out, options, rows)
    show(rows)


if __name__ == "__main__":
    main()
