"""Two samplers, their guidance, and the way they count.

`state.sampling_step` is set by a callback in the middle of a step, after its first call of the model: in the first call
of step i it is still i - 1. The denoiser counts its own calls, of which a second-order sampler makes two in a step.
"""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch

from modules import script_callbacks, shared


class InterruptedException(BaseException):
    """Ends the sampling; what was made last is the result."""


class CFGDenoiser:
    def __init__(self, sampler: "Sampler") -> None:
        self.sampler = sampler
        self.p: Any = None
        self.step = self.steps = self.total_steps = 0

    def __call__(self, x, sigma):
        if shared.state.interrupted:
            raise InterruptedException
        if getattr(self.p, "refiner_at", None) == self.step:
            shared.sd_model = self.p.refiner
        told = shared.state.sampling_step, shared.state.sampling_steps
        params = SimpleNamespace(sampling_step=told[0], total_sampling_steps=told[1], denoiser=self)
        script_callbacks.call("cfg_denoiser", params)
        both = torch.cat([x, x])
        calls = [both] if shared.opts.batch_cond_uncond else both.chunk(2)
        cond, uncond = torch.cat([shared.sd_model.apply_model(half, sigma) for half in calls]).chunk(2)
        self.step += 1
        return uncond + 2 * (cond - uncond)


class Sampler:
    def __init__(self, name: str) -> None:
        self.second_order = name == "Heun"
        self.model_wrap_cfg = CFGDenoiser(self)
        self.last_latent: Any = None

    def launch_sampling(self, steps, func):
        self.model_wrap_cfg.steps = steps
        self.model_wrap_cfg.total_steps = steps * 2 if self.second_order else steps
        shared.state.sampling_steps, shared.state.sampling_step = steps, 0
        try:
            return func()
        except InterruptedException:
            return self.last_latent

    def run(self, p, x, sigmas):
        self.model_wrap_cfg.p, self.model_wrap_cfg.step, self.last_latent = p, 0, x
        return self.launch_sampling(len(sigmas) - 1, lambda: self.loop(x * sigmas[0], sigmas))

    def loop(self, x, sigmas):
        for i, (sigma, following) in enumerate(pairwise(sigmas)):
            slope = self.slope(x, sigma)
            shared.state.sampling_step = i
            if self.second_order and following > 0:
                slope = (slope + self.slope(x + slope * (following - sigma), following)) / 2
            x = x + slope * (following - sigma)
            self.last_latent = x
        return x

    def slope(self, x, sigma):
        return self.model_wrap_cfg(x, sigma)

    def sample(self, p, x):
        return self.run(p, x, schedule(p.steps))

    def sample_img2img(self, p, x, noise, steps=None):
        """A given number of steps is the number that is executed; else the strength leaves a part of them."""
        if steps is not None:
            total, executed = int(steps / min(p.denoising_strength, 0.999)), steps
        else:
            total, executed = p.steps, int(min(p.denoising_strength, 0.999) * p.steps) + 1
        return self.run(p, x + noise, schedule(total)[total - executed :])


def schedule(steps: int) -> list[float]:
    return [*(1 - i / steps for i in range(steps)), 0.0]
