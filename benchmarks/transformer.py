"""Fewer keys in a transformer, the counter-example: a small one is trained on the flowers, and its pictures fall apart.

    python flowers/train/prepare.py PHOTOS --run run
    python benchmarks/transformer.py PHOTOS --run run --seconds 480 --out benchmarks/results/transformer.json \
        --sheet docs/figures/transformer.jpg

It learns in the latents of the embedded model's autoencoder, by rectified flow (Liu et al., arXiv 2209.03003), small
pictures first; `--seconds` is how long it learns in all, and the rate falls to zero by then. Then it draws the same
pictures dense, with ToDo's keys, with dithered keys, and with fewer steps. The weights stay in the folder of the run:
what has learnt only draws.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import todome_flowers
import torch
from diffusers import AutoencoderTiny
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm
from transformer_model import Transformer, rows_of

from todome.tools.machine import about, chip
from todome.tools.measuring.comparing import measures_at
from todome.tools.measuring.methods import Method, method_named
from todome.tools.measuring.runs import write_json
from todome.tools.measuring.tables import mean, worst
from todome.tools.metrics import LPIPS
from todome.tools.pictures import difference
from todome.tools.pipelines import EMBEDDED, weights_of
from todome.tools.sheets import Column, draw_sheet
from todome.tools.timing import measuring, milliseconds, spread

sys.path.append(str(Path(__file__).parents[1] / "flowers/train"))  # last, for its modules have common names

from checkpoints import has_weights, read_weights, write_weights
from diffusion import DROPPED, EMA, RATES, WARM_UP, WHOLE, Size, encode
from optimising import Muon, take_step
from photos import load_photos
from prepared import read_entries

STEPS, GUIDANCE = 30, 2.0
METHODS = ("todo:2", "todome:2", "todome:4")
CONTROLS = (24, 20, 15, 12)  # steps
DECODED = 16  # pictures at once


class Stage(NamedTuple):
    """A size of pictures, and when it is done: as a share of the time that the transformer learns."""

    size: Size
    until: float


STAGES = (Stage(Size(64, 64, 1024, 8), 0.4), Stage(Size(128, 128, 512, 8), 0.75), Stage(Size(256, 256, 128, 4), 1.0))


class Trainer:
    """The transformer, its average and its optimisers."""

    def __init__(self, device: torch.device, model: Transformer) -> None:
        self.device, self.model, self.iteration = device, model.to(device), 0
        named = list(model.named_parameters())
        matrices = [p for name, p in named if "blocks" in name and p.ndim == 2 and "modulation" not in name]
        rest = [p for name, p in named if "blocks" not in name or p.ndim != 2 or "modulation" in name]
        adam = torch.optim.AdamW(rest, lr=RATES[1], betas=(0.9, 0.99), weight_decay=0.0)
        self.optimisers = [Muon(matrices, lr=RATES[0], weight_decay=0.02), adam]
        self.parameters = dict(named)
        self.average = {name: p.detach().clone() for name, p in named}

    def loss(self, z: Tensor, labels: Tensor) -> Tensor:
        """The error of the velocity from latents to noise, at times one in each slice."""
        t = (torch.arange(len(z), device=z.device) + torch.rand(len(z), device=z.device)) / len(z)
        noise, share = torch.randn_like(z), t.view(-1, 1, 1, 1)
        labels = torch.where(torch.rand(len(z), device=z.device) < DROPPED, 0, labels + 1)
        with torch.autocast(z.device.type, torch.bfloat16):
            velocity = self.model((1 - share) * z + share * noise, t, labels)
        return F.mse_loss(velocity.float(), noise - z)

    def step(self, loss: Tensor, share: float) -> None:
        take_step(self.optimisers, loss, min(1, (self.iteration + 1) / WARM_UP) * share)
        self.iteration += 1
        weight = 1 - min(EMA, (1 + self.iteration) / (10 + self.iteration))
        torch._foreach_lerp_(list(self.average.values()), [p.detach() for p in self.parameters.values()], weight)


def train(trainer: Trainer, vae: Any, options: argparse.Namespace, stages: Sequence[Stage]) -> None:
    """For the time of the options, with latents of each size of pictures."""
    entries = read_entries(options.run)
    pixels = load_photos([options.photos / entry.file for entry in entries]).to(trainer.device)
    labels = torch.tensor([entry.label for entry in entries], device=trainer.device)
    seconds = 0.0
    for size, until in stages:
        latents = encode(vae, pixels, labels, size, (WHOLE, 1.4 if size.height < 256 else 1.1))
        bar, before = tqdm(desc=f"{size.height} px", mininterval=10), time.monotonic()
        while seconds < until * options.seconds:
            chosen = torch.randint(len(latents.z), (size.batch,), device=latents.z.device)
            loss = trainer.loss(latents.z[chosen].float(), latents.labels[chosen])
            trainer.step(loss, max(0.0, 1 - seconds / options.seconds))
            bar.update()
            now = time.monotonic()
            seconds, before = seconds + now - before, now


@torch.inference_mode()
def draw(model: Transformer, noise: Tensor, labels: Tensor, method: Method, steps: int = STEPS) -> Tensor:
    """Latents from noise (batch, 4, height, width), with guidance, in Euler's steps."""
    steps, z = method.steps or steps, noise
    both = torch.cat([labels + 1, torch.zeros_like(labels)])
    for step in range(steps):
        t = torch.full((2 * len(z),), 1 - step / steps, device=z.device)
        rows = rows_of(method.reduction, step, z.device)
        with torch.autocast(z.device.type, torch.bfloat16):
            asked, any_other = model(z.repeat(2, 1, 1, 1), t, both, rows).float().chunk(2)
        z = z - (any_other + GUIDANCE * (asked - any_other)) / steps
    return z


@torch.inference_mode()
def decoded(vae: Any, latents: Tensor) -> Tensor:
    """Pictures (batch, 3, height, width) from 0 to 1, as 8 bits hold them."""
    made = torch.cat([vae.decode(some).sample for some in latents.split(DECODED)])
    return (made / 2 + 0.5).clamp(0, 1).mul(255).round() / 255


@torch.inference_mode()
def call_ms(model: Transformer, noise: Tensor, method: Method) -> float:
    """Of one call with guidance. The rows are known by then, as they are to a patch."""
    twice, rows = noise.repeat(2, 1, 1, 1), rows_of(method.reduction, 0, noise.device)
    t = torch.ones(len(twice), device=noise.device)
    with measuring(), torch.autocast(noise.device.type, torch.bfloat16):
        return spread(milliseconds(lambda: model(twice, t, t.long(), rows), noise.device, 0.3)).median


class Drawn(NamedTuple):
    row: dict[str, Any]
    picture: Image.Image  # the first


def compare(
    model: Transformer, vae: Any, side: int, options: argparse.Namespace, steps: int, controls: Sequence[int]
) -> list[Drawn]:
    """Dense, each method, and dense in fewer steps; one number of steps costs as much as factor 2 does."""
    device, pictures = next(model.parameters()).device, options.pictures
    lpips = LPIPS.load(options.lpips).to(device) if options.lpips else None
    source = torch.Generator().manual_seed(0)  # of the CPU: alike on every device
    noise = torch.randn(pictures, 4, side // 4, side // 4, generator=source).to(device)
    labels = torch.arange(pictures, device=device) % (model.label.num_embeddings - 1)
    ms = {name: call_ms(model, noise, method_named(name)) for name in ("dense", *METHODS)}
    equal = max(1, round(steps * ms["todome:2"] / ms["dense"]))
    dense = decoded(vae, draw(model, noise, labels, method_named("dense"), steps))
    found = [
        Drawn(
            {"method": "dense", "px": side, "pictures": pictures, "steps": steps, "ms": ms["dense"]}, as_image(dense[0])
        )
    ]
    for name in (*METHODS, *(f"dense:{number}" for number in dict.fromkeys([equal, *controls]))):
        method = method_named(name)
        made = decoded(vae, draw(model, noise, labels, method, steps))
        row = {"method": name, "px": side, "pictures": pictures, "steps": method.steps or steps}
        row |= {"ms": ms.get(name, ms["dense"]), "equal_cost": name == f"dense:{equal}"}
        found.append(Drawn(row | closeness(made, dense, lpips), as_image(made[0])))
    return found


def closeness(made: Tensor, dense: Tensor, lpips: LPIPS | None) -> dict[str, float]:
    """To dense, by our own metrics, over the pictures."""
    size = (made.shape[-1], made.shape[-2])
    values = {name: measure(made, dense).double().tolist() for name, measure in measures_at(size, lpips).items()}
    means = {name: round(mean([v for v in found if v == v]) or 0, 5) for name, found in values.items()}
    return means | {"psnr_worst": round(worst(values["psnr"]) or 0, 5)}


def sheet(drawn: Sequence[Drawn], trained: str) -> Image.Image:
    """Dense, ToDo, dithered at two factors, and fewer steps at the cost of the first of them."""
    names = {"dense": "dense", "todo:2": "ToDo 2", "todome:2": "dithered 2", "todome:4": "dithered 4"}
    first, *others = [one for one in drawn if one.row["method"] in names or one.row.get("equal_cost")]
    columns = [Column(first.picture, "dense", ["every key", f"{first.row['steps']} steps"])]
    for row, picture in others:
        name = names.get(row["method"], f"dense, {row['steps']} steps")
        lines = ["costs as much as factor 2" if row["equal_cost"] else f"{first.row['ms'] / row['ms']:.2f}x a step"]
        lines.append(f"PSNR to dense: {row['psnr']:.1f} dB")
        columns.append(Column(picture, name, lines, difference(picture, first.picture)))
    note = "To the right: where each picture differs from the dense one, 8 times as bright."
    return draw_sheet("A transformer with fewer keys", trained, columns, note)


def as_image(picture: Tensor) -> Image.Image:
    return Image.fromarray((picture * 255).byte().movedim(0, -1).cpu().numpy())


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--run", type=Path, required=True, help="the folder that prepare.py has made")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sheet", type=Path, help="where a row of pictures goes")
    parser.add_argument("--seconds", type=float, default=480, help="for how long it learns in all")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--eager", action="store_true", help="learn without torch.compile")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 256], help="of the pictures it draws, px")
    parser.add_argument("--pictures", type=int, default=20, help="of each size")
    parser.add_argument("--lpips", type=Path, help="weights of LPIPS")
    return parser.parse_args()


def learnt(vae: Any, device: torch.device, options: argparse.Namespace, stages: Sequence[Stage]) -> Transformer:
    """The transformer with the weights in the folder of the run, which are made unless they are there."""
    labels = 1 + max(entry.label for entry in read_entries(options.run))
    if not has_weights(options.run, "transformer"):
        trainer = Trainer(device, Transformer(labels, options.width, options.layers))
        for block in () if options.eager else trainer.model.blocks:
            block.compile(dynamic=False)  # one graph for all of them and each size
        train(trainer, vae, options, stages)
        write_weights(options.run, "transformer", trainer.average)
        facts = {"seconds": options.seconds, "iterations": trainer.iteration, "layers": options.layers}
        facts |= {"width": options.width, "parameters": sum(p.numel() for p in trainer.model.parameters())}
        write_json(options.run / "transformer.json", facts)
    model = Transformer(labels, options.width, options.layers).to(device).eval()  # nothing in it is compiled
    model.load_state_dict(read_weights(options.run, "transformer"))
    return model


def main(stages: Sequence[Stage] = STAGES, steps: int = STEPS, controls: Sequence[int] = CONTROLS) -> None:
    options = parsed_options()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    vae: Any = AutoencoderTiny.from_pretrained(todome_flowers.path() / "vae", dtype=torch.float32)
    vae.to(device, memory_format=torch.channels_last).eval().requires_grad_(False)
    model = learnt(vae, device, options, stages)
    facts = json.loads((options.run / "transformer.json").read_text())
    drawn = [compare(model, vae, side, options, steps, controls) for side in options.sizes]
    rows = [one.row for some in drawn for one in some]
    machine = {**about(device, "diffusers"), **weights_of(EMBEDDED)}
    write_json(options.out, {"about": machine, "trained": facts, "rows": rows})
    if options.sheet:
        words = f"{facts['layers']} layers of width {facts['width']}, trained {facts['seconds']:g} s on {chip(device)}"
        made = sheet(drawn[-1], f"{words}; {options.sizes[-1]} px, guidance {GUIDANCE:g}")
        made.save(options.sheet, quality=92, comment=json.dumps(weights_of(EMBEDDED)))


if __name__ == "__main__":
    main()
