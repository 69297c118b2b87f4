"""Train the UNet and the text encoder together, small pictures first.

    python diffusion.py PHOTOS --run run [--seconds 500]

v-prediction (Salimans & Ho, arXiv 2202.00512) on the latents of the autoencoder, a tenth of the prompts empty for
guidance (Ho & Salimans, arXiv 2207.12598), an average of the weights for use. Three stages: whole photos and parts of
them at 128 px, where a step is cheap; photos as they are at 256 px; and a mix of sizes up to 512 px. Goes on where an
earlier run of the same folder stopped; `--seconds` stops it in good order.
"""

import argparse
import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from checkpoints import log, read_state, read_weights, write_state, write_weights
from models import TOKENS, make_autoencoder, make_scheduler, make_text_encoder, make_tokenizer, make_unet
from optimising import take_step
from photos import SIDE, cut, load_photos
from prepared import read_entries, read_prompts
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm
from words import vocabulary

DROPPED = 0.1  # share of the prompts that are left empty
WARM_UP = 200  # iterations
EMA = 0.999
LOG_EVERY = 100
SAVE_EVERY = 1000


class Size(NamedTuple):
    height: int
    width: int
    batch: int
    variants: int  # cuts of every photo that are kept as latents
    compiled: bool


@dataclass(frozen=True)
class Stage:
    name: str
    sizes: tuple[Size, ...]  # taken in turn
    zooms: tuple[float, float]  # small ones are drawn more often
    iterations: int
    rates: tuple[float, float]  # at the first and the last iteration


WHOLE = SIDE / 256
STAGES = (
    Stage("small", (Size(128, 128, 512, 16, True),), (WHOLE, 1.8), 3000, (6e-4, 4e-4)),
    Stage("full", (Size(256, 256, 256, 6, True),), (WHOLE, WHOLE), 560, (4e-4, 1.5e-4)),
    Stage(
        "mixed",
        (
            Size(256, 256, 256, 6, True),
            Size(256, 384, 128, 1, False),
            Size(512, 512, 40, 1, False),
            Size(384, 256, 128, 1, False),
        ),
        (WHOLE, WHOLE),
        200,
        (1.5e-4, 2e-5),
    ),
)


class Latents(NamedTuple):
    z: Tensor  # (variants * photos, 4, height / 4, width / 4)
    labels: Tensor  # (variants * photos,)


class Trainer:
    """The networks, their optimiser and their average, and how far they are."""

    def __init__(self, run: Path, device: str) -> None:
        self.run, self.device = run, device
        self.unet: Any = make_unet()
        self.tokenizer = make_tokenizer(vocabulary())
        self.text_encoder: Any = make_text_encoder(self.tokenizer)
        self.unet.to(device, memory_format=torch.channels_last)
        self.text_encoder.to(device)
        self.parameters = [*self.unet.parameters(), *self.text_encoder.parameters()]
        self.average = [p.detach().clone() for p in self.parameters]
        self.optimiser = torch.optim.AdamW(self.parameters, betas=(0.9, 0.99), weight_decay=0.01, fused=True)
        self.iteration = 0
        alphas = make_scheduler().alphas_cumprod.to(device)
        self.signal, self.noise = alphas.sqrt(), (1 - alphas).sqrt()

    @cached_property
    def compiled(self) -> Any:
        """The UNet by way of the compiler, which is not touched before."""
        return torch.compile(self.unet, dynamic=False)

    def loss(self, z: Tensor, tokens: Tensor, compiled: bool) -> Tensor:
        """The error of the velocity at random times, one in each slice of the schedule."""
        count = len(z)
        t = ((torch.arange(count, device=z.device) + torch.rand(count, device=z.device)) / count * 1000).long()
        signal, noise = (level[t].view(-1, 1, 1, 1) for level in (self.signal, self.noise))
        e = torch.randn_like(z)
        with torch.autocast(z.device.type, torch.bfloat16):
            words = self.text_encoder(tokens).last_hidden_state
            network = self.compiled if compiled else self.unet
            v = network(signal * z + noise * e, t, words, return_dict=False)[0]
        return F.mse_loss(v.float(), signal * e - noise * z)

    def step(self, loss: Tensor, rate: float) -> None:
        take_step(self.optimiser, loss, rate)
        self.iteration += 1
        weight = 1 - min(EMA, (1 + self.iteration) / (10 + self.iteration))
        torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], weight)

    def save(self) -> None:
        state = {"unet": self.unet.state_dict(), "text_encoder": self.text_encoder.state_dict()}
        state |= {"average": self.average, "optimiser": self.optimiser.state_dict(), "iteration": self.iteration}
        write_state(self.run, "diffusion", state)
        averaged = iter(self.average)
        for name, network in (("unet", self.unet), ("text_encoder", self.text_encoder)):
            weights = {key: next(averaged) for key, _ in network.named_parameters()}
            write_weights(self.run, name, network.state_dict() | weights)

    def resume(self) -> None:
        state = read_state(self.run, "diffusion")
        if state is None:
            return
        self.unet.load_state_dict(state["unet"])
        self.text_encoder.load_state_dict(state["text_encoder"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.average = [average.to(self.device) for average in state["average"]]
        self.iteration = state["iteration"]
        torch.manual_seed(self.iteration)  # or else it would draw the noise of the beginning once more


class Prompts:
    """Tokens of a random caption of each label, some of them empty."""

    def __init__(self, rows: Tensor, tokenizer: Any, device: str) -> None:
        self.rows = rows.long().to(device)  # (labels, captions, length)
        self.empty = torch.tensor(tokenizer("", padding="max_length").input_ids, device=device)

    def of(self, labels: Tensor) -> Tensor:
        chosen = torch.randint(self.rows.shape[1], labels.shape, device=labels.device)
        tokens = self.empty.repeat(len(labels), 1)
        tokens[:, : self.rows.shape[2]] = self.rows[labels, chosen]
        dropped = torch.rand(len(labels), 1, device=labels.device) < DROPPED
        return torch.where(dropped, self.empty, tokens)  # (batch, TOKENS)


@torch.no_grad()
def encode(vae: Any, photos: Tensor, labels: Tensor, size: Size, zooms: tuple[float, float]) -> Latents:
    """Latents of random cuts of every photo."""
    made = []
    for chunk in photos.repeat(size.variants, 1, 1, 1).split(128):
        zoom = zooms[0] + (zooms[1] - zooms[0]) * float(torch.rand(())) ** 2
        with torch.autocast(chunk.device.type, torch.bfloat16):
            made.append(vae.encoder(cut(chunk, size.height, size.width, zoom)))
    return Latents(torch.cat(made), labels.repeat(size.variants))


def rate_at(stage: Stage, i: int, iteration: int) -> float:
    first, last = stage.rates
    cosine = 0.5 * (1 + math.cos(math.pi * i / stage.iterations))
    return (last + (first - last) * cosine) * min(1, (iteration + 1) / WARM_UP)


def batches(latents: list[Latents], sizes: tuple[Size, ...], prompts: Prompts) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """Latents and tokens, of each size in turn."""
    for size, (z, labels) in itertools.cycle(zip(sizes, latents, strict=True)):
        chosen = torch.randint(len(z), (size.batch,), device=z.device)
        yield z[chosen].float().contiguous(memory_format=torch.channels_last), prompts.of(labels[chosen]), size.compiled


def train_stage(trainer: Trainer, stage: Stage, begin: int, source: Iterator[tuple], deadline: float) -> bool:
    """Train to the end of a stage; False where the time was up before."""
    began, summed, count = time.monotonic(), torch.zeros((), device=trainer.device), 0
    done = trainer.iteration - begin
    for i in tqdm(range(done, stage.iterations), stage.name, initial=done, total=stage.iterations, mininterval=10):
        if time.monotonic() > deadline:
            return False
        loss = trainer.loss(*next(source))
        trainer.step(loss, rate_at(stage, i, trainer.iteration))
        summed, count = summed + loss.detach(), count + 1
        if (i + 1) % LOG_EVERY == 0:
            entry = {"loss": round(summed.item() / count, 5), "seconds": round(time.monotonic() - began, 1)}
            log(trainer.run, "diffusion", stage=stage.name, iteration=trainer.iteration, **entry)
            summed, count = torch.zeros_like(summed), 0
        if (i + 1) % SAVE_EVERY == 0:
            trainer.save()
    return True


def warm_up(trainer: Trainer, stages: list[Stage]) -> None:
    """Compile every compiled size on noise: a run that follows, or goes on beside, finds it in the compiler's cache."""
    for size in dict.fromkeys(size for stage in stages for size in stage.sizes if size.compiled):
        z = torch.randn(size.batch, 4, size.height // 4, size.width // 4, device=trainer.device)
        tokens = torch.zeros(size.batch, TOKENS, dtype=torch.long, device=trainer.device)
        trainer.step(trainer.loss(z.contiguous(memory_format=torch.channels_last), tokens, compiled=True), 0.0)
        print(f"compiled {size}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--run", type=Path, default=Path("run"))
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop in good order after this time")
    parser.add_argument("--warm-up", action="store_true", help="only fill the compiler's cache")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--iterations", type=int, nargs=len(STAGES), help="of each stage")
    parser.add_argument("--share", type=float, default=1.0, help="of the batch sizes, for smaller GPUs")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    trainer = Trainer(options.run, options.device)
    stages = asked_stages(options)
    if options.warm_up:
        warm_up(trainer, stages)
    else:
        trainer.resume()
        train(trainer, stages, options.photos, deadline)
        trainer.save()


def asked_stages(options: argparse.Namespace) -> list[Stage]:
    """The stages as the command line changes them."""
    stages = []
    for stage, iterations in zip(STAGES, options.iterations or [stage.iterations for stage in STAGES], strict=True):
        sizes = (size._replace(batch=max(1, round(size.batch * options.share))) for size in stage.sizes)
        sizes = tuple(size._replace(compiled=size.compiled and not options.eager) for size in sizes)
        stages.append(replace(stage, sizes=sizes, iterations=iterations))
    return stages


def train(trainer: Trainer, stages: list[Stage], folder: Path, deadline: float) -> None:
    """All stages that are not done yet."""
    entries = read_entries(trainer.run)
    photos = load_photos([folder / entry.file for entry in entries]).to(trainer.device)
    labels = torch.tensor([entry.label for entry in entries], device=trainer.device)
    prompts = Prompts(read_prompts(trainer.run), trainer.tokenizer, trainer.device)
    vae: Any = make_autoencoder()
    vae.to(trainer.device, memory_format=torch.channels_last)
    vae.load_state_dict(read_weights(trainer.run, "vae"))
    begin = 0
    for stage in stages:
        if trainer.iteration < begin + stage.iterations:
            latents = [encode(vae, photos, labels, size, stage.zooms) for size in stage.sizes]
            if not train_stage(trainer, stage, begin, batches(latents, stage.sizes, prompts), deadline):
                return
        begin += stage.iterations


if __name__ == "__main__":
    main()
