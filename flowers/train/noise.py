"""How noisy latents are at each time of the schedule, and what the network learns to say of them.

Stable Diffusion's schedule ends before all is noise: at its last time the mean colour of a picture is still to be read,
while sampling begins with noise alone. The model takes that for a picture of middling brightness, and pictures get a
third of the range that photos have (Lin et al., arXiv 2305.08891, who change the schedule). Here the schedule stays,
and with it every scheduler; the network learns another path instead, that begins nearer to pure noise and soon joins
the schedule's. A sampler moves x / noise by z d(signal / noise), where z is what the network takes for the latents. It
follows a path with the ratio k' in place of k if the network says z dk' / dk.
"""

from typing import NamedTuple

import torch
from torch import Tensor

LESS = 0.7  # of the ratio of signal to noise is taken away at the last time: all would be too much for samplers that
# add noise on their way, which then overshoot
FADE = 0.1  # and less and less of it as the ratio grows


class Path(NamedTuple):
    """Coefficients for each time, (times,)."""

    signal: Tensor
    noise: Tensor
    velocity_of_noise: Tensor
    velocity_of_latents: Tensor

    def at(self, t: Tensor) -> "Path":
        """For a batch with these times, to be multiplied with latents."""
        return Path(*(level[t].view(-1, 1, 1, 1) for level in self))

    def noisy(self, z: Tensor, e: Tensor) -> Tensor:
        return self.signal * z + self.noise * e

    def velocity(self, z: Tensor, e: Tensor) -> Tensor:
        return self.velocity_of_noise * e - self.velocity_of_latents * z


def make_path(alphas_cumprod: Tensor) -> Path:
    alphas = alphas_cumprod.double()
    signal, noise = alphas.sqrt(), (1 - alphas).sqrt()
    ratio = signal / noise
    less = LESS * ratio[-1] * torch.exp((ratio[-1] - ratio) / FADE)
    growth = 1 + less / FADE  # dk' / dk
    # A scheduler takes signal x - noise v for the latents: this v makes that growth z.
    velocity_of_latents = growth / noise - signal * (ratio - less)
    return Path(*(level.float() for level in (noise * (ratio - less), noise, signal, velocity_of_latents)))
