"""Teach the decoder to read what the UNet writes.

    python decoder.py PHOTOS --run run --lpips lpips.safetensors

The UNet's latents are smoother than the encoder's: in its last steps it leaves out what it cannot know. So the decoder
is trained further, by itself, on latents of photos to which the noise of those steps was added and from which the UNet
took it again. The encoder stays as it is, and with it all that the UNet has learnt. Goes on where an earlier run of
the same folder stopped.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from autoencoder import Progress, difference, share_at
from checkpoints import read_weights, write_weights
from diffusion import WHOLE, Prompts, Trainer
from models import make_autoencoder
from optimising import take_step
from photos import cut, load_photos
from prepared import read_entries, read_prompts
from torch import Tensor
from tqdm import tqdm

from todome.tools.metrics import LPIPS

LATE = 100  # times: what the last two of 25 steps see
SIDE = 256  # pixels
RATE = 2e-4
LOG_EVERY, SAVE_EVERY = 50, 500


@torch.no_grad()
def rewritten(trainer: Trainer, z: Tensor, tokens: Tensor) -> Tensor:
    """Latents as the UNet gives them back when a little noise was added."""
    t = torch.randint(LATE, (len(z),), device=z.device)
    path = trainer.path.at(t)
    x = path.noisy(z, torch.randn_like(z))
    with torch.autocast(z.device.type, torch.bfloat16):
        v = trainer.unet(x, t, trainer.text_encoder(tokens).last_hidden_state, return_dict=False)[0]
    return path.velocity_of_noise * x - path.noise * v.float()  # as schedulers do


class Lessons:
    """Photos, and the same as latents that the UNet has rewritten."""

    def __init__(self, trainer: Trainer, vae: Any, folder: Path, batch: int) -> None:
        self.trainer, self.vae, self.batch = trainer, vae, batch
        entries, device = read_entries(trainer.run), trainer.device
        self.photos = load_photos([folder / entry.file for entry in entries]).to(device)
        self.labels = torch.tensor([entry.label for entry in entries], device=device)
        self.prompts = Prompts(read_prompts(trainer.run), trainer.tokenizer, device)

    @torch.no_grad()
    def next(self) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(self.photos), (self.batch,), device=self.photos.device)
        x = cut(self.photos[chosen], SIDE, SIDE, WHOLE)
        with torch.autocast(x.device.type, torch.bfloat16):
            z = self.vae.encoder(x)
        return x, rewritten(self.trainer, z.float(), self.prompts.of(self.labels[chosen]))


def train(lessons: Lessons, lpips: LPIPS, run: Path, iterations: int) -> None:
    vae = lessons.vae
    optimiser = torch.optim.AdamW(vae.decoder.parameters(), lr=RATE, betas=(0.9, 0.99), fused=True)
    progress = Progress(run, "decoder", vae, optimiser)
    rest = range(progress.done, iterations)
    for i in tqdm(rest, "decoder", initial=progress.done, total=iterations, mininterval=10):
        x, z = lessons.next()
        with torch.autocast(x.device.type, torch.bfloat16):
            made = vae.decoder(z)
        loss, squared = difference(made.float(), x, lpips)
        take_step([optimiser], loss, share_at(i, iterations))
        if (i + 1) % LOG_EVERY == 0:
            progress.log(i + 1, loss, squared)
        if (i + 1) % SAVE_EVERY == 0 or i + 1 == iterations:
            progress.save(i + 1)
            write_weights(run, "vae", vae.state_dict())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--run", type=Path, default=Path("run"))
    parser.add_argument("--lpips", type=Path, required=True, help="weights of LPIPS with AlexNet")
    parser.add_argument("--iterations", type=int, default=800)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    trainer = Trainer(options.run, options.device)
    trainer.load({name: read_weights(options.run, name) for name in trainer.networks})
    vae: Any = make_autoencoder()
    vae.to(options.device, memory_format=torch.channels_last)
    vae.load_state_dict(read_weights(options.run, "vae"))
    lpips = LPIPS.load(options.lpips).to(options.device).requires_grad_(False)
    train(Lessons(trainer, vae, options.photos, options.batch), lpips, options.run, options.iterations)


if __name__ == "__main__":
    main()
