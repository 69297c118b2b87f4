"""Pipelines that share a model, with a scheduler in common or each with its own."""

from typing import Any

import pytest
from diffusers import StableDiffusionImg2ImgPipeline
from sampling import CALLS, KNOWN_WARNINGS, SCHEDULERS, unwatched, window
from zoo import draw, recording, tiny_pipeline

import todome
from todome import Downsample

pytestmark = KNOWN_WARNINGS

HALF: Any = {"strength": 0.5}


def test_pipelines_that_share_model_and_scheduler():
    first = tiny_pipeline()
    second = tiny_pipeline(first.scheduler, first.unet, StableDiffusionImg2ImgPipeline)
    patch = todome.apply(first, Downsample(2, stop=0.6))
    for pipeline, calls, options in [(first, 10, {}), (second, 5, HALF), (first, 10, {})]:
        with recording(first.unet, patch) as record:
            draw(pipeline, **options)
        assert record.phases == list(range(calls))
        assert record.reduced == window(calls, 0, 0.6)
    patch.remove()
    assert unwatched(first.scheduler)


def test_pipelines_that_share_a_model_with_schedulers_of_their_own():
    first = tiny_pipeline()
    second = tiny_pipeline(SCHEDULERS["Heun"](), first.unet)
    todome.apply(first, Downsample(2, stop=0.6))
    patch = todome.apply(second, Downsample(2, stop=0.6))
    for pipeline, calls in [(first, 10), (second, 19), (first, 10)]:
        with recording(first.unet, patch) as record:
            draw(pipeline)
        assert record.phases == list(range(calls))
        assert record.reduced == window(calls, 0, 0.6)
    patch.remove()
    assert unwatched(first.scheduler)
    assert unwatched(second.scheduler)


def test_a_replaced_patch_hands_on_the_pipelines_it_followed():
    first = tiny_pipeline()
    second = tiny_pipeline(unet=first.unet)
    todome.apply(first, Downsample(2, stop=0.6))
    patch = todome.apply(second, Downsample(2, stop=0.6))
    first.scheduler = SCHEDULERS["Heun"]()
    with recording(first.unet, patch) as record:
        draw(first)
    assert record.reduced == window(19, 0, 0.6)


@pytest.mark.parametrize("name", ["DDIM", "Euler", "Heun"])
def test_a_pipeline_that_was_not_applied_still_dithers(name):
    first = tiny_pipeline(SCHEDULERS[name]())
    second = tiny_pipeline(SCHEDULERS[name](), first.unet)
    patch = todome.apply(first, Downsample(2))
    pictures = []
    for pipeline in (second, second, first, second):
        with recording(first.unet, patch) as record:
            pictures.append(draw(pipeline))
        counted = list(range(CALLS.get(name, 10)))
        by_timestep = [(call + 1) // 2 for call in counted] if name == "Heun" else counted  # which repeats timesteps
        assert record.phases == (counted if pipeline is first else by_timestep)
    assert pictures[0].equal(pictures[1])
    assert pictures[0].equal(pictures[3])


@pytest.mark.parametrize("name", ["DDIM", "Euler", "Heun"])
def test_a_window_on_a_pipeline_that_was_not_applied_is_an_error(name):
    first = tiny_pipeline(SCHEDULERS[name]())
    second = tiny_pipeline(SCHEDULERS[name](), first.unet)
    todome.apply(first, Downsample(2, stop=0.6))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"outside of a run.*scheduler=.*patch\.at\(step, steps\)"):
            draw(second)
        draw(first)
