"""Train the autoencoder: 4x smaller, 4 channels, nearly lossless to the eye.

    python autoencoder.py PHOTOS --run run --lpips lpips.safetensors

L1 + 0.5 MSE + 0.7 LPIPS (Zhang et al., arXiv 1801.03924), and latents of mean 0 and deviation 1 in every channel, so
that the diffusion model needs no scaling factor. Goes on where an earlier run of the same folder stopped.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

import torch
from checkpoints import log, read_state, write_state, write_weights
from models import make_autoencoder
from optimising import take_step
from photos import cut, list_photos, load_photos
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from todome.tools.metrics import LPIPS

BATCH = 192  # cuts of 128 px, as many pixels as 48 photos
CUT = 128
RATE = 6e-4
WARM_UP = 100  # iterations


def share_at(iteration: int, iterations: int) -> float:
    """Of the full rate."""
    return min(1, (iteration + 1) / WARM_UP) * (0.5 * (1 + math.cos(math.pi * iteration / iterations)) + 0.01)


def loss_of(vae: Any, lpips: LPIPS, x: Tensor) -> tuple[Tensor, Tensor]:
    """The loss, and the squared error of the reconstruction."""
    with torch.autocast(x.device.type, torch.bfloat16):
        z = vae.encoder(x)
        made = vae.decoder(z + 0.05 * torch.randn_like(z))  # the decoder forgives small errors of the latents
    z = z.float()
    mean, std = z.mean((0, 2, 3)), z.std((0, 2, 3))
    moments = (mean.square() + (std - 1).square()).mean()
    loss, squared = difference(made.float(), x, lpips)
    return loss + 0.1 * moments, squared


def difference(made: Tensor, x: Tensor, lpips: LPIPS) -> tuple[Tensor, Tensor]:
    """Of a reconstruction, as it is trained and as it is reported."""
    squared = F.mse_loss(made, x)
    seen = lpips((made / 2 + 0.5).clamp(-0.1, 1.1), x / 2 + 0.5).mean()
    return F.l1_loss(made, x) + 0.5 * squared + 0.7 * seen, squared


class Progress:
    """How far the training of an autoencoder, or of a part of it, is: on disk, and in the log."""

    def __init__(self, run: Path, stage: str, vae: Any, optimiser: torch.optim.Optimizer) -> None:
        self.run, self.stage, self.vae, self.optimiser = run, stage, vae, optimiser
        self.done = 0
        if state := read_state(run, stage):
            vae.load_state_dict(state["vae"])
            optimiser.load_state_dict(state["optimiser"])
            self.done = state["iteration"]
            torch.manual_seed(self.done)  # or else it would draw what it drew at the beginning once more
        self.began = time.perf_counter()

    def log(self, iteration: int, loss: Tensor, squared: Tensor) -> None:
        psnr, seconds = 10 * math.log10(4 / squared.item()), time.perf_counter() - self.began
        log(self.run, self.stage, iteration=iteration, loss=loss.item(), psnr=psnr, seconds=seconds)

    def save(self, iteration: int) -> None:
        state = {"vae": self.vae.state_dict(), "optimiser": self.optimiser.state_dict(), "iteration": iteration}
        write_state(self.run, self.stage, state)


def train(photos: Tensor, lpips: LPIPS, run: Path, iterations: int, batch: int) -> None:
    device = photos.device
    vae: Any = make_autoencoder()
    vae.to(device, memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(vae.parameters(), lr=RATE, betas=(0.9, 0.99), fused=True)
    progress = Progress(run, "autoencoder", vae, optimiser)
    rest = range(progress.done, iterations)
    for i in tqdm(rest, "autoencoder", initial=progress.done, total=iterations, mininterval=10):
        chosen = torch.randint(len(photos), (batch,), device=device)
        loss, squared = loss_of(vae, lpips, cut_for_training(photos[chosen]))
        take_step([optimiser], loss, share_at(i, iterations))
        if (i + 1) % 100 == 0:
            progress.log(i + 1, loss, squared)
        if (i + 1) % 1000 == 0 or i + 1 == iterations:
            progress.save(i + 1)
    write_weights(run, "vae", vae.state_dict())


def cut_for_training(photos: Tensor) -> Tensor:
    """Cuts of whole photos made small, of photos as they are, and of everything between."""
    zoom = 1.05 + float(torch.rand(())) * (photos.shape[-1] / CUT - 1.05)
    return cut(photos, CUT, CUT, zoom)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--run", type=Path, default=Path("run"))
    parser.add_argument("--lpips", type=Path, required=True, help="weights of LPIPS with AlexNet")
    parser.add_argument("--iterations", type=int, default=2200)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    options.run.mkdir(parents=True, exist_ok=True)
    photos = load_photos([path for path, _ in list_photos(options.photos)]).to(options.device)
    lpips = LPIPS.load(options.lpips).to(options.device).requires_grad_(False)
    train(photos, lpips, options.run, options.iterations, options.batch)


if __name__ == "__main__":
    main()
