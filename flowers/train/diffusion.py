"""Train the UNet and the text encoder together, small pictures first.

    python diffusion.py PHOTOS --run run [--seconds 500]

v-prediction (Salimans & Ho, arXiv 2202.00512) on the latents of the autoencoder, a tenth of the prompts empty for
guidance (Ho & Salimans, arXiv 2207.12598), an average of the weights for use. Muon trains the matrices of the blocks,
convolutions among them, AdamW the rest; their rates fall to zero in a line. Three stages: whole photos and parts of
them at 128 px, where a step is cheap; photos as they are at 256 px; and a mix of sizes up to 512 px.

Goes on where an earlier run of the same folder stopped; `--seconds` stops it in good order. In a folder that holds
weights alone, such as those of a pipeline, it begins with them.
"""

import argparse
import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from checkpoints import has_weights, log, read_state, read_weights, write_state, write_weights
from diffusers.models.resnet import ResnetBlock2D
from diffusers.models.transformers.transformer_2d import Transformer2DModel
from models import TOKENS, make_autoencoder, make_scheduler, make_text_encoder, make_tokenizer, make_unet, unet_changes
from noise import make_path
from optimising import Muon, take_step
from photos import SIDE, cut, load_photos
from prepared import read_entries, read_prompts
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from tqdm import tqdm
from words import vocabulary

DROPPED = 0.1  # share of the prompts that are left empty
RATES = (2e-3, 1e-3)  # of Muon and of AdamW
WARM_UP = 100  # iterations
EMA = 0.999
# With heads of 16 channels, forward and back at 256 px on an H200: 16 ms instead of flash attention's 21.
ATTENTION = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
LOG_EVERY = 100
SAVE_EVERY = 250


class Size(NamedTuple):
    height: int
    width: int
    batch: int
    variants: int  # cuts of every photo that are kept as latents


@dataclass(frozen=True)
class Stage:
    name: str
    sizes: tuple[Size, ...]  # taken in turn
    zooms: tuple[float, float]  # small ones are drawn more often
    iterations: int


WHOLE = SIDE / 256
FULL = Size(256, 256, 128, 8)
LARGER = (Size(256, 384, 64, 1), Size(512, 512, 24, 1), Size(384, 256, 64, 1))
STAGES = (
    Stage("small", (Size(128, 128, 512, 16),), (WHOLE, 1.8), 2000),
    Stage("full", (FULL,), (WHOLE, 1.2), 5000),
    Stage("mixed", tuple(size for larger in LARGER for size in (FULL, larger)), (WHOLE, WHOLE), 1000),
)


class Latents(NamedTuple):
    z: Tensor  # (variants * photos, 4, height / 4, width / 4)
    labels: Tensor  # (variants * photos,)


class Trainer:
    """The networks, their optimisers and their average, and how far they are."""

    def __init__(self, run: Path, device: str, rate: float = 1.0) -> None:
        self.run, self.device = run, device
        self.unet: Any = make_unet(**unet_changes(run))
        self.tokenizer = make_tokenizer(vocabulary())
        self.text_encoder: Any = make_text_encoder(self.tokenizer)
        self.unet.to(device, memory_format=torch.channels_last)
        self.text_encoder.to(device)
        self.networks = {"unet": self.unet, "text_encoder": self.text_encoder}
        named = [pair for network in self.networks.values() for pair in network.named_parameters()]
        self.parameters = [p for _, p in named]
        self.average = [p.detach().clone() for p in self.parameters]
        matrices = [p for name, p in named if p.ndim > 1 and ("block" in name or "layers" in name)]
        rest = [p for name, p in named if p.ndim == 1 or not ("block" in name or "layers" in name)]
        adam = torch.optim.AdamW(rest, lr=rate * RATES[1], betas=(0.9, 0.99), weight_decay=0.0, fused=True)
        self.optimisers = [Muon(matrices, lr=rate * RATES[0], weight_decay=0.02), adam]
        self.iteration = 0
        self.path = make_path(make_scheduler().alphas_cumprod.to(device))

    def compile(self) -> None:
        """Block by block: those of a shape share a graph, 16 for each size of picture."""
        torch._dynamo.config.recompile_limit = 100  # a graph for each shape of a block and each size of picture
        for module in self.unet.modules():
            if isinstance(module, (ResnetBlock2D, Transformer2DModel)):
                module.compile(dynamic=False)

    def loss(self, z: Tensor, tokens: Tensor) -> Tensor:
        """The error of the velocity at random times, one in each slice of the schedule."""
        count = len(z)
        t = ((torch.arange(count, device=z.device) + torch.rand(count, device=z.device)) / count * 1000).long()
        path, e = self.path.at(t), torch.randn_like(z)
        with torch.autocast(z.device.type, torch.bfloat16):
            words = self.text_encoder(tokens).last_hidden_state
            v = self.unet(path.noisy(z, e), t, words, return_dict=False)[0]
        return F.mse_loss(v.float(), path.velocity(z, e))

    def step(self, loss: Tensor, share: float) -> None:
        take_step(self.optimisers, loss, share)
        self.iteration += 1
        weight = 1 - min(EMA, (1 + self.iteration) / (10 + self.iteration))
        torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], weight)

    def save(self) -> None:
        state: dict[str, Any] = {name: network.state_dict() for name, network in self.networks.items()}
        state["optimisers"] = [optimiser.state_dict() for optimiser in self.optimisers]
        write_state(self.run, "diffusion", state | {"average": self.average, "iteration": self.iteration})
        averaged = iter(self.average)
        for name, network in self.networks.items():
            weights = {key: next(averaged) for key, _ in network.named_parameters()}
            write_weights(self.run, name, network.state_dict() | weights)

    def resume(self) -> None:
        """From the state that `save` left, or else from weights alone where there are any."""
        if state := read_state(self.run, "diffusion"):
            for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
                optimiser.load_state_dict(saved)
            self.load(state)
            self.average = [average.to(self.device) for average in state["average"]]
            self.iteration = state["iteration"]
            torch.manual_seed(self.iteration)  # or else it would draw the noise of the beginning once more
        elif all(has_weights(self.run, name) for name in self.networks):
            self.load({name: read_weights(self.run, name) for name in self.networks})
            self.average = [p.detach().clone() for p in self.parameters]

    def load(self, weights: Mapping[str, Any]) -> None:
        for name, network in self.networks.items():
            network.load_state_dict(weights[name])


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


def share_at(iteration: int, iterations: int) -> float:
    """Of the full rate: a short way up, and a line down to zero."""
    return min(1, (iteration + 1) / WARM_UP) * (1 - iteration / iterations)


def batches(latents: Mapping[Size, Latents], sizes: tuple[Size, ...], prompts: Prompts) -> Iterator[tuple[Tensor, ...]]:
    """Latents and tokens, of each size in turn."""
    for size in itertools.cycle(sizes):
        z, labels = latents[size]
        chosen = torch.randint(len(z), (size.batch,), device=z.device)
        yield z[chosen].float().contiguous(memory_format=torch.channels_last), prompts.of(labels[chosen])


class Span(NamedTuple):
    """The iterations of a stage among those of the run."""

    name: str
    end: int
    all: int


def train_stage(trainer: Trainer, span: Span, source: Iterator[tuple[Tensor, ...]], deadline: float) -> bool:
    """Train to the end of a stage; False where the time was up before."""
    began, summed, count = time.monotonic(), torch.zeros((), device=trainer.device), 0
    for i in tqdm(range(trainer.iteration, span.end), span.name, mininterval=10):
        if time.monotonic() > deadline:
            return False
        loss = trainer.loss(*next(source))
        trainer.step(loss, share_at(i, span.all))
        summed, count = summed + loss.detach(), count + 1
        if (i + 1) % LOG_EVERY == 0:
            entry = {"loss": round(summed.item() / count, 5), "seconds": round(time.monotonic() - began, 1)}
            log(trainer.run, "diffusion", stage=span.name, iteration=i + 1, **entry)
            summed, count = torch.zeros_like(summed), 0
        if (i + 1) % SAVE_EVERY == 0:
            trainer.save()
    return True


def warm_up(trainer: Trainer, stages: list[Stage]) -> None:
    """Compile every size on noise: a run that follows, or goes on beside, finds it in the compiler's cache."""
    for size in dict.fromkeys(size for stage in stages if stage.iterations for size in stage.sizes):
        z = torch.randn(size.batch, 4, size.height // 4, size.width // 4, device=trainer.device)
        tokens = torch.zeros(size.batch, TOKENS, dtype=torch.long, device=trainer.device)
        trainer.step(trainer.loss(z.contiguous(memory_format=torch.channels_last), tokens), 0.0)
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
    parser.add_argument(
        "--rate", type=float, default=1.0, help="share of the rates, for a run that begins with weights"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and of the noise")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    trainer = Trainer(options.run, options.device, options.rate)
    stages = asked_stages(options)
    if not options.eager:
        trainer.compile()
    with sdpa_kernel(list(ATTENTION), set_priority=True):
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
        sizes = tuple(size._replace(batch=max(1, round(size.batch * options.share))) for size in stage.sizes)
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
    end, total = 0, sum(stage.iterations for stage in stages)
    for stage in stages:
        end += stage.iterations
        if trainer.iteration < end:
            latents = {size: encode(vae, photos, labels, size, stage.zooms) for size in dict.fromkeys(stage.sizes)}
            source = batches(latents, stage.sizes, prompts)
            if not train_stage(trainer, Span(stage.name, end, total), source, deadline):
                return


if __name__ == "__main__":
    main()
