"""Fewer keys in a transformer, the counter-example: a small one is trained on the flowers, and its pictures fall apart.

    python flowers/train/prepare.py PHOTOS --run run
    python benchmarks/transformer.py PHOTOS --run run --seconds 480 --out benchmarks/results/transformer.json \
        --sheet docs/figures/transformer.jpg

It learns in the latents of the embedded model's autoencoder, by rectified flow (Liu et al., arXiv 2209.03003), small
pictures first; `--seconds` is how long it learns in all, and the rate falls to zero by then. Then it draws the same
pictures dense, with ToDo's keys, with dithered keys, and with fewer steps. Goes on where it was interrupted or stopped
by `--stop-after`; the weights stay in the folder of the run.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm
from transformer_model import Rows, Transformer, rows_of

from todome import Downsample
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

from checkpoints import log, read_state, write_state
from diffusion import DROPPED, EMA, RATES, WARM_UP, WHOLE, Latents, Size, encode
from optimising import Muon, take_step
from photos import load_photos
from prepared import read_entries

STEPS, GUIDANCE = 30, 2.0
METHODS = ("todo:2", "todome:2", "todome:4")
CONTROLS = (24, 20, 15, 12)  # steps
LOG_EVERY, SAVE_EVERY = 50, 30  # iterations, seconds
DECODED = 16  # pictures at once


class Stage(NamedTuple):
    """A size of pictures, and when it is done: as a share of the time that the transformer learns."""

    size: Size
    until: float


STAGES = (Stage(Size(64, 64, 1024, 8), 0.4), Stage(Size(128, 128, 512, 8), 0.75), Stage(Size(256, 256, 128, 4), 1.0))


class Trainer:
    """The transformer, its average, its optimisers, and for how long it has learnt."""

    def __init__(self, run: Path, device: torch.device, model: Transformer) -> None:
        self.run, self.device, self.model = run, device, model.to(device)
        named = list(model.named_parameters())
        matrices = [p for name, p in named if "blocks" in name and p.ndim == 2 and "modulation" not in name]
        rest = [p for name, p in named if "blocks" not in name or p.ndim != 2 or "modulation" in name]
        adam = torch.optim.AdamW(rest, lr=RATES[1], betas=(0.9, 0.99), weight_decay=0.0)
        self.optimisers = [Muon(matrices, lr=RATES[0], weight_decay=0.02), adam]
        self.parameters: list[Tensor] = [p for _, p in named]
        self.average = [p.detach().clone() for p in self.parameters]
        self.iteration, self.seconds = 0, 0.0
        if state := read_state(run, "transformer"):
            self.resume(state)

    def resume(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.average = [average.to(self.device) for average in state["average"]]
        self.iteration, self.seconds = state["iteration"], state["seconds"]
        torch.manual_seed(self.iteration)  # or else it would draw the noise of the beginning once more

    def save(self) -> None:
        state: dict[str, Any] = {"model": self.model.state_dict(), "average": self.average}
        state["optimisers"] = [optimiser.state_dict() for optimiser in self.optimisers]
        write_state(self.run, "transformer", state | {"iteration": self.iteration, "seconds": self.seconds})

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
        torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], weight)

    def averaged(self) -> Transformer:
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.average)
        return self.model.eval()


def train(trainer: Trainer, vae: Any, photos: Path, options: argparse.Namespace) -> bool:
    """Until the time is up; False where it was stopped before."""
    entries = read_entries(trainer.run)
    pixels = load_photos([photos / entry.file for entry in entries]).to(trainer.device)
    labels = torch.tensor([entry.label for entry in entries], device=trainer.device)
    deadline = time.monotonic() + options.stop_after
    for stage in STAGES:
        size = stage.size._replace(
            batch=max(1, round(stage.size.batch * options.share)),
            variants=max(1, round(stage.size.variants * options.share)),
        )
        if trainer.seconds < stage.until * options.seconds:
            latents = encode(vae, pixels, labels, size, (WHOLE, 1.4 if size.height < 256 else 1.1))
            if not train_stage(trainer, latents, size, stage.until, options.seconds, deadline):
                return False
    return True


def train_stage(trainer: Trainer, latents: Latents, size: Size, until: float, seconds: float, deadline: float) -> bool:
    saved = before = time.monotonic()
    bar = tqdm(desc=f"{size.height} px", mininterval=10)
    while trainer.seconds < until * seconds:
        chosen = torch.randint(len(latents.z), (size.batch,), device=latents.z.device)
        loss = trainer.loss(latents.z[chosen].float(), latents.labels[chosen])
        trainer.step(loss, max(0.0, 1 - trainer.seconds / seconds))
        if trainer.iteration % LOG_EVERY == 0:
            log(trainer.run, "transformer", px=size.height, iteration=trainer.iteration, loss=round(loss.item(), 4))
        now = time.monotonic()
        trainer.seconds, before = trainer.seconds + now - before, now
        if now > deadline or now - saved > SAVE_EVERY:
            saved = now
            trainer.save()
        if now > deadline:
            return False
        bar.update()
    trainer.save()
    return True


def rows_at(method: Method, step: int, device: torch.device) -> Rows | None:
    return rows_of(method.reduction, step, device) if isinstance(method.reduction, Downsample) else None


@torch.inference_mode()
def draw(model: Transformer, noise: Tensor, labels: Tensor, method: Method) -> Tensor:
    """Latents from noise (batch, 4, height, width), with guidance, in Euler's steps."""
    steps, z = method.steps or STEPS, noise
    both = torch.cat([labels + 1, torch.zeros_like(labels)])
    for step in range(steps):
        t = torch.full((2 * len(z),), 1 - step / steps, device=z.device)
        rows = rows_at(method, step, z.device)
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
    """Of one call with guidance. The rows are looked up before, as a patch does."""
    t, labels = torch.ones(2 * len(noise), device=noise.device), torch.zeros(2 * len(noise), device=noise.device).long()
    grid, rows = (noise.shape[-2], noise.shape[-1]), rows_at(method, 0, noise.device)
    if rows is not None:
        known = [rows(layer, grid) for layer in range(len(model.blocks))]
        rows = lambda layer, grid: known[layer]  # noqa: E731
    twice = noise.repeat(2, 1, 1, 1)
    with measuring(), torch.autocast(noise.device.type, torch.bfloat16):
        return spread(milliseconds(lambda: model(twice, t, labels, rows), noise.device, 0.3)).median


class Drawn(NamedTuple):
    row: dict[str, Any]
    picture: Tensor  # the first, (3, height, width)


def compare(model: Transformer, vae: Any, side: int, pictures: int, lpips: LPIPS | None) -> list[Drawn]:
    """Dense, each method, and dense in fewer steps; one number of steps costs as much as factor 2 does."""
    device = next(model.parameters()).device
    source = torch.Generator().manual_seed(0)  # of the CPU: alike on every device
    noise = torch.randn(pictures, 4, side // 4, side // 4, generator=source).to(device)
    labels = torch.arange(pictures, device=device) % (model.label.num_embeddings - 1)
    ms = {name: call_ms(model, noise, method_named(name)) for name in ("dense", *METHODS)}
    equal = max(1, round(STEPS * ms["todome:2"] / ms["dense"]))
    dense = decoded(vae, draw(model, noise, labels, method_named("dense")))
    found = [Drawn({"method": "dense", "px": side, "pictures": pictures, "steps": STEPS, "ms": ms["dense"]}, dense[0])]
    for name in (*METHODS, f"dense:{equal}", *(f"dense:{steps}" for steps in CONTROLS if steps != equal)):
        method = method_named(name)
        made = decoded(vae, draw(model, noise, labels, method))
        row = {"method": name, "px": side, "pictures": pictures, "steps": method.steps or STEPS}
        row |= {"ms": ms.get(name, ms["dense"]), "equal_cost": name == f"dense:{equal}"}
        found.append(Drawn(row | closeness(made, dense, lpips), made[0]))
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
    chosen = [one for one in drawn if one.row["method"] in names or one.row.get("equal_cost")]
    first, *others = [(one.row, as_image(one.picture)) for one in chosen]
    columns = [Column(first[1], "dense", ["every key", f"{STEPS} steps"])]
    for row, picture in others:
        name = names.get(row["method"], f"dense, {row['steps']} steps")
        lines = ["costs as much as factor 2" if row["equal_cost"] else f"{first[0]['ms'] / row['ms']:.2f}x a step"]
        lines.append(f"PSNR to dense: {row['psnr']:.1f} dB")
        columns.append(Column(picture, name, lines, difference(picture, first[1])))
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
    parser.add_argument(
        "--stop-after", type=float, default=math.inf, help="stop learning in good order after this time"
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the batch sizes and of the cuts of each photo, for smaller GPUs"
    )
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--eager", action="store_true", help="learn without torch.compile")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 256], help="of the pictures it draws, px")
    parser.add_argument("--pictures", type=int, default=20, help="of each size")
    parser.add_argument("--lpips", type=Path, help="weights of LPIPS")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    options = parsed_options()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device(options.device)
    vae = autoencoder(device)
    labels = 1 + max(entry.label for entry in read_entries(options.run))
    trainer = Trainer(options.run, device, Transformer(labels, options.width, options.layers))
    if not options.eager:
        for block in trainer.model.blocks:
            block.compile(dynamic=False)  # one graph for all of them and each size
    if not train(trainer, vae, options.photos, options):
        print(f"Stopped after {trainer.seconds:.0f} s of learning: the same command goes on.")
        return
    measure(trainer, vae, labels, options)


def autoencoder(device: torch.device) -> Any:
    from diffusers import AutoencoderTiny
    from todome_flowers import path

    vae: Any = AutoencoderTiny.from_pretrained(path() / "vae", dtype=torch.float32)
    return vae.to(device, memory_format=torch.channels_last).eval().requires_grad_(False)


def measure(trainer: Trainer, vae: Any, labels: int, options: argparse.Namespace) -> None:
    model = Transformer(labels, options.width, options.layers).to(trainer.device).eval()  # nothing in it is compiled
    model.load_state_dict(trainer.averaged().state_dict())
    lpips = LPIPS.load(options.lpips).to(trainer.device) if options.lpips else None
    facts = {"seconds": round(trainer.seconds), "iterations": trainer.iteration, "layers": options.layers}
    facts |= {"width": options.width, "parameters": sum(p.numel() for p in model.parameters())}
    found = {"about": {**about(trainer.device, "diffusers"), **weights_of(EMBEDDED)}, "trained": facts, "rows": []}
    drawn: list[Drawn] = []
    for side in options.sizes:
        drawn = compare(model, vae, side, options.pictures, lpips)
        found["rows"] += [one.row for one in drawn]
        write_json(options.out, found)
    if options.sheet:
        words = (
            f"{options.layers} layers of width {options.width}, trained {facts['seconds']} s on {chip(trainer.device)}"
        )
        made = sheet(drawn, f"{words}; {options.sizes[-1]} px, guidance {GUIDANCE:g}")
        made.save(options.sheet, quality=92, comment=json.dumps(weights_of(EMBEDDED)))


if __name__ == "__main__":
    main()
