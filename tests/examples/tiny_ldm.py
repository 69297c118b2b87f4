"""What samplers of ldm ask of LatentDiffusion, around a real UNetModel: ldm's own class wants pytorch-lightning 1."""

from typing import Any

import torch
from ldm.modules.diffusionmodules.util import make_beta_schedule
from torch import Tensor, nn
from torch.nn import functional as F
from zoo import TEXT, WIDTH, LatentDiffusion, ldm_unet


class TinyLatentDiffusion(LatentDiffusion):
    num_timesteps, parameterization = 1000, "eps"
    model: Any
    betas: Tensor
    alphas_cumprod: Tensor
    alphas_cumprod_prev: Tensor

    def __init__(self) -> None:
        super().__init__(ldm_unet())
        self.words = nn.Embedding(2, WIDTH)
        betas = torch.from_numpy(make_beta_schedule("linear", 1000, linear_start=0.00085, linear_end=0.012)).float()
        signal = (1 - betas).cumprod(0)
        self.register_buffer("betas", betas)
        self.register_buffer("alphas_cumprod", signal)
        self.register_buffer("alphas_cumprod_prev", torch.cat([torch.ones(1), signal[:-1]]))

    @property
    def device(self) -> torch.device:
        return self.betas.device

    def apply_model(self, latents: Tensor, times: Tensor, context: Tensor) -> Tensor:
        return self.model.diffusion_model(latents, times, context)

    def get_learned_conditioning(self, prompts: list[str]) -> Tensor:
        """(prompts, TEXT, WIDTH): one word for nothing, one for anything."""
        return self.words(torch.tensor([[int(bool(prompt))] * TEXT for prompt in prompts]))

    def decode_first_stage(self, latents: Tensor) -> Tensor:
        """(B, 3, 8 H, 8 W)"""
        return F.interpolate(latents[:, :3], scale_factor=8.0)
