"""What the tests of runs share: every scheduler, a run that is watched, and a loop of a user's own."""

import pickle
from typing import Any

import pytest
import torch
from diffusers import (
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    DPMSolverSDEScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    HeunDiscreteScheduler,
    LCMScheduler,
    PNDMScheduler,
    UniPCMultistepScheduler,
)
from zoo import SIDE, TEXT, WIDTH, ddim, draw, recording, text

import todome

KNOWN_WARNINGS = [
    pytest.mark.filterwarnings("ignore:Should have t[ab]:UserWarning"),  # torchsde, float rounding at the ends
    pytest.mark.filterwarnings("ignore:The configuration file of this scheduler:FutureWarning"),  # PNDM with PRK steps
]

SCHEDULERS: dict[str, Any] = {
    "DDIM": ddim,
    "DDPM": lambda: DDPMScheduler(steps_offset=1, clip_sample=False),
    "PNDM": lambda: PNDMScheduler(steps_offset=1, skip_prk_steps=True),
    "PNDM with PRK": lambda: PNDMScheduler(steps_offset=1, skip_prk_steps=False),
    "Euler": lambda: EulerDiscreteScheduler(steps_offset=1),
    "Euler ancestral": lambda: EulerAncestralDiscreteScheduler(steps_offset=1),
    "Heun": lambda: HeunDiscreteScheduler(steps_offset=1),
    "DPM++ 2M": lambda: DPMSolverMultistepScheduler(steps_offset=1),
    "DPM++ 2M SDE": lambda: DPMSolverMultistepScheduler(steps_offset=1, algorithm_type="sde-dpmsolver++"),
    "DPM++ SDE": lambda: DPMSolverSDEScheduler(steps_offset=1, noise_sampler_seed=0),
    "UniPC": lambda: UniPCMultistepScheduler(steps_offset=1),
    "LCM": lambda: LCMScheduler(steps_offset=1, clip_sample=False),
}
CALLS = {"PNDM": 11, "PNDM with PRK": 19, "Heun": 19, "DPM++ SDE": 19}  # of 10 steps; all others call once a step

every_scheduler = pytest.mark.parametrize("name", SCHEDULERS)


def window(calls: int, start: float, stop: float) -> list[bool]:
    return [start * calls - 1e-9 <= call < stop * calls - 1e-9 for call in range(calls)]


def run(pipeline: Any, reduction: Any, **options: Any) -> Any:
    """What the first self-attention saw in one run with a reduction that is taken off again."""
    with todome.apply(pipeline, reduction) as patch, recording(pipeline.unet, patch) as record:
        draw(pipeline, **options)
    return record


def loop(unet: Any, scheduler: Any, calls: int = 1) -> torch.Tensor:
    """A sampling loop of a user's own over a scheduler that is set up."""
    sample = torch.linspace(-1, 1, 4 * SIDE * SIDE).view(1, 4, SIDE, SIDE)
    prompt = text(1)
    for timestep in scheduler.timesteps:
        noise = sum(unet(sample, timestep, prompt * (1 - i)).sample for i in range(calls)) / calls
        sample = scheduler.step(noise, timestep, sample).prev_sample
    return sample


def unwatched(scheduler: Any) -> bool:
    return not {"step", "set_timesteps"} & vars(scheduler).keys()


def call_diffusers(unet: Any, timestep: int = 5) -> None:
    unet(torch.zeros(1, 4, SIDE, SIDE), timestep, torch.zeros(1, TEXT, WIDTH))


def through_pickle(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))
