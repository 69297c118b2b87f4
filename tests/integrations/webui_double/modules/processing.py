"""A generation: txt2img with its hires pass, and img2img."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F

from modules import infotext_utils, shared
from modules.sd_samplers import Sampler


@dataclass
class StableDiffusionProcessing:
    scripts: Any
    script_args: list[Any]
    steps: int = 4
    size: int = 8  # of the latents
    sampler_name: str = "Euler"
    denoising_strength: float = 0.5
    extra_generation_params: dict[str, Any] = field(default_factory=dict)
    comments: dict[str, int] = field(default_factory=dict)
    is_hr_pass: bool = False
    sampler: Any = None

    @property
    def sd_model(self) -> Any:
        return shared.sd_model

    def comment(self, text: str) -> None:
        self.comments[text] = 1

    def noise(self, size: int) -> Any:
        return torch.randn(1, 4, size, size, generator=torch.Generator().manual_seed(0))


@dataclass
class StableDiffusionProcessingTxt2Img(StableDiffusionProcessing):
    enable_hr: bool = False
    hr_second_pass_steps: int = 0

    def sample(self) -> Any:
        self.sampler = Sampler(self.sampler_name)
        x = self.noise(self.size)
        self.scripts.run("process_before_every_sampling", self, x=x, noise=x)
        samples = self.sampler.sample(self, x)
        return self.sample_hr_pass(samples) if self.enable_hr else samples

    def sample_hr_pass(self, samples: Any) -> Any:
        self.is_hr_pass = True
        self.sampler = Sampler(self.sampler_name)
        samples = F.interpolate(samples, scale_factor=2)
        noise = self.noise(self.size * 2)
        self.scripts.run("process_before_every_sampling", self, x=samples, noise=noise)
        samples = self.sampler.sample_img2img(self, samples, noise, steps=self.hr_second_pass_steps or self.steps)
        self.is_hr_pass = False
        return samples


@dataclass
class StableDiffusionProcessingImg2Img(StableDiffusionProcessing):
    def sample(self) -> Any:
        self.sampler = Sampler(self.sampler_name)
        picture = torch.ones(1, 4, self.size, self.size)
        self.scripts.run("process_before_every_sampling", self, x=picture, noise=self.noise(self.size))
        return self.sampler.sample_img2img(self, picture, self.noise(self.size))


@dataclass
class Processed:
    samples: Any
    infotext: str
    comments: str = ""


def process_images(p: Any) -> Processed:
    p.scripts.run("process", p)
    with torch.no_grad():
        samples = p.sample()
    processed = Processed(samples, infotext_utils.written({"Steps": p.steps, **p.extra_generation_params}))
    p.scripts.run("postprocess", p, processed)
    return processed
