"""What a step of LoRA training costs, dense and with fewer keys: SD 1.5 and SDXL, with and without checkpointing.

    python benchmarks/training.py --out benchmarks/results/training.json

Random weights in bf16 on a CUDA GPU, LoRA layers of rank 16 in float32, AdamW; one step is forward, backward and
optimiser. The GPU's own time is that of a CUDA graph of the whole step. The attention of `math` is the plain product
with softmax that trainers used before flash attention. Cases that the file holds already are not measured again.
"""

import argparse
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import LoraConfig
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from todome.tools.machine import about
from todome.tools.measuring.methods import Method, method_named
from todome.tools.measuring.runs import write_json
from todome.tools.measuring.subjects import open_subject, random_inputs
from todome.tools.timing import captured, milliseconds, peak_mib, settle, spread

METHODS = ["dense", "todome:2,phase=random", "todome:4,2,phase=random"]
SECONDS = 0.3  # for how long each method is measured
PROJECTIONS = ["to_q", "to_k", "to_v", "to_out.0"]  # of every attention, as in LoRA (arXiv 2106.09685)
DEVICE = torch.device("cuda")


class Case(NamedTuple):
    model: str
    px: int
    pictures: int
    checkpointing: bool = False
    mode: str = "cuda-graph"
    attention: str = "flash"


def cases() -> Iterator[Case]:
    """What the tables show: the claims are made for 768 px on SD 1.5 and for 1024 px on SDXL."""
    sizes = [("sd15", 512), ("sd15", 768), ("sd15", 1024), ("sdxl", 1024)]
    for (model, px), checkpointing in itertools.product(sizes, (False, True)):
        yield Case(model, px, 4, checkpointing)
    for model, px in sizes:
        yield Case(model, px, 4, mode="eager")
    for (model, px), attention in itertools.product([("sd15", 768), ("sdxl", 1024)], ("flash", "math")):
        yield Case(model, px, 1, attention=attention)  # the matrices of `math` leave room for one picture


def with_lora(model: str) -> Any:
    """A UNet whose attention has LoRA layers, which alone are trained."""
    torch.manual_seed(0)
    unet = open_subject(model, "cuda", "bfloat16")
    unet.add_adapter(LoraConfig(r=16, lora_alpha=16, target_modules=PROJECTIONS))
    for parameter in unet.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return unet.train()


def step_of(unet: Any, case: Case) -> Callable[[], None]:
    """One optimisation step on random latents, each picture at a timestep of its own."""
    (latents, _, text), kwargs = random_inputs(unet, (case.px, case.px), case.pictures)
    timesteps = torch.randint(0, 1000, (case.pictures,), device=DEVICE)
    target = torch.randn_like(latents)
    trained = [parameter for parameter in unet.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, capturable=True, fused=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):  # a graph must not keep cached casts
            predicted = unet(latents, timesteps, text, **kwargs).sample
        F.mse_loss(predicted.float(), target.float()).backward()
        optimiser.step()

    return step


@contextmanager
def prepared(unet: Any, case: Case) -> Iterator[None]:
    """The UNet as the case wants it. Nothing in it is random, so checkpointing need not keep the generators' state."""
    attention = sdpa_kernel(SDPBackend.MATH) if case.attention == "math" else nullcontext()
    if case.checkpointing:
        unet.enable_gradient_checkpointing(partial(checkpoint, use_reentrant=False, preserve_rng_state=False))
    try:
        with attention:
            yield
    finally:
        unet.disable_gradient_checkpointing()


def measured(unet: Any, case: Case, method: Method) -> dict[str, Any]:
    with method.on(unet):
        step = step_of(unet, case)
        warmed_up(step)
        memory = peak_mib(step, DEVICE)
        call = captured(step) if case.mode == "cuda-graph" else step
        settle(call, DEVICE)
        time_taken = spread(milliseconds(call, DEVICE, SECONDS))
    return {**case._asdict(), "method": method.name, "ms": time_taken._asdict(), "peak_mib": memory}


def warmed_up(step: Callable[[], None]) -> None:
    """On a stream beside the usual one: what autograd sets up there can be captured later."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(beside)


def rows_of(unet: Any, case: Case) -> list[dict[str, Any]]:
    """Dense first and last: how far it drifted is part of the result."""
    with prepared(unet, case):
        rows = [measured(unet, case, method_named(name)) for name in [*METHODS, "dense"]]
    first, last = rows[0]["ms"]["median"], rows[-1]["ms"]["median"]
    for row in rows:
        row["speedup"] = (first + last) / 2 / row["ms"]["median"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    done = {tuple(row[name] for name in Case._fields) for row in rows}
    for model, group in itertools.groupby(sorted(set(cases()) - done), lambda case: case.model):
        unet = with_lora(model)
        for case in group:
            rows += rows_of(unet, case)
            write_json(options.out, {"about": about(DEVICE, "diffusers", "peft"), "rows": rows})
            print(case, [f"{row['method']} {row['speedup']:.2f}x" for row in rows[-4:]], flush=True)


if __name__ == "__main__":
    main()
