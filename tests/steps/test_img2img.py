"""Runs that begin in the middle: only the steps that are executed count."""

import pytest
from diffusers import StableDiffusionImg2ImgPipeline, StableDiffusionInpaintPipeline
from sampling import KNOWN_WARNINGS, SCHEDULERS, run, window
from zoo import tiny_pipeline

from todome import Downsample

pytestmark = KNOWN_WARNINGS


@pytest.mark.parametrize("name", ["DDIM", "DDPM", "Euler", "PNDM", "PNDM with PRK", "Heun", "DPM++ 2M", "UniPC", "LCM"])
def test_img2img_counts_the_steps_it_executes(name):
    pipeline = tiny_pipeline(SCHEDULERS[name](), kind=StableDiffusionImg2ImgPipeline)
    for strength, stop in [(0.3, 0.6), (0.5, 0.55), (0.8, 0.6), (1.0, 0.55)]:
        record = run(pipeline, Downsample(2, stop=stop), strength=strength)
        assert record.phases == list(range(len(record.phases))), strength
        assert name != "DDIM" or len(record.phases) == 10 * strength
        assert record.reduced == window(len(record.phases), 0, stop), strength


@pytest.mark.parametrize("name", ["DDIM", "Euler", "PNDM"])
@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_inpainting(name, strength):
    pipeline = tiny_pipeline(SCHEDULERS[name](), kind=StableDiffusionInpaintPipeline)
    record = run(pipeline, Downsample(2, start=0.2, stop=0.6), strength=strength)
    assert record.reduced == window(len(record.phases), 0.2, 0.6)
