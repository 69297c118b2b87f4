"""Schedulers and pipelines that are followed: as they were to everybody else, also where they are copied."""

import copy
import gc
import inspect
import weakref
from typing import Any

import pytest
import torch
from diffusers import StableDiffusionPipeline
from sampling import (
    KNOWN_WARNINGS,
    SCHEDULERS,
    call_diffusers,
    every_scheduler,
    loop,
    run,
    through_pickle,
    unwatched,
    window,
)
from zoo import SIDE, draw, noise, one_level_unet, recording, text, tiny_pipeline

import todome
from todome import Downsample

pytestmark = KNOWN_WARNINGS
SAMPLE = torch.zeros(1, 4, SIDE, SIDE)


def described(scheduler: Any) -> list[Any]:
    methods = [scheduler.step, scheduler.set_timesteps]
    return [(inspect.signature(method), method.__name__, method.__doc__) for method in methods]


@every_scheduler
def test_pipelines_see_the_signature_of_their_scheduler(name):
    pipeline = tiny_pipeline(SCHEDULERS[name]())
    seen, before = described(pipeline.scheduler), dict(vars(pipeline.scheduler))
    with todome.apply(pipeline, Downsample(2)):
        assert described(pipeline.scheduler) == seen
        assert not unwatched(pipeline.scheduler)
    assert vars(pipeline.scheduler) == before


def test_a_users_own_step_is_kept_and_restored():
    pipeline = tiny_pipeline()
    method, seen = pipeline.scheduler.step, []

    def counted(model_output: Any, timestep: Any, sample: Any, **options: Any) -> Any:
        seen.append(int(timestep))
        return method(model_output, timestep, sample, **options)

    pipeline.scheduler.step = counted
    record = run(pipeline, Downsample(2, stop=0.6))
    assert record.reduced == window(10, 0, 0.6)
    assert len(seen) == 10
    assert vars(pipeline.scheduler)["step"] is counted


def test_a_replaced_patch_watches_once():
    pipeline = tiny_pipeline()
    method = pipeline.scheduler.step
    for _ in range(3):
        todome.apply(pipeline, Downsample(2, stop=0.6))
    assert pipeline.scheduler.step.__wrapped__ == method
    assert run(pipeline, Downsample(2, stop=0.6)).reduced == window(10, 0, 0.6)
    todome.remove(pipeline)
    assert unwatched(pipeline.scheduler)


def test_what_a_user_puts_on_top_stays():
    unet, scheduler = one_level_unet(), SCHEDULERS["DDIM"]()
    patch = todome.apply(unet, Downsample(2), scheduler=scheduler)
    watched = scheduler.step
    on_top: Any = lambda *args, **kwargs: watched(*args, **kwargs)  # noqa: E731
    scheduler.step = on_top
    patch.remove()
    assert vars(scheduler)["step"] is on_top
    scheduler.set_timesteps(2)
    loop(unet, scheduler)


def test_a_scheduler_that_was_cleaned_by_its_user_is_left_as_it_is():
    unet, scheduler = one_level_unet(), SCHEDULERS["DDIM"]()
    before = dict(vars(scheduler))
    patch = todome.apply(unet, Downsample(2), scheduler=scheduler)
    vars(scheduler).clear()
    vars(scheduler).update(before)
    patch.remove()
    assert vars(scheduler) == before


def test_two_patches_follow_one_scheduler():
    unets, scheduler = [one_level_unet(), one_level_unet()], SCHEDULERS["DDIM"]()
    first, second = (todome.apply(unet, Downsample(2), scheduler=scheduler) for unet in unets)
    scheduler.set_timesteps(4)
    with recording(unets[0], first) as one, recording(unets[1], second) as other:
        for number, timestep in enumerate(scheduler.timesteps):
            for unet in unets:
                call_diffusers(unet)
            scheduler.step(model_output=SAMPLE, timestep=timestep, sample=SAMPLE)
            if number == 1:
                first.remove()
    assert one.phases[:2] == [0, 1]
    assert other.phases == [0, 1, 2, 3]
    second.remove()
    assert unwatched(scheduler)


def test_arguments_and_results_are_handed_through_and_a_failing_step_does_not_count():
    unet, scheduler, bare = one_level_unet(), SCHEDULERS["DDIM"](), SCHEDULERS["DDIM"]()
    patch = todome.apply(unet, Downsample(2), scheduler=scheduler)
    for one in (scheduler, bare):
        one.set_timesteps(num_inference_steps=4, device="cpu")
    with pytest.raises(TypeError, match="missing"):
        vars(scheduler)["step"]()
    with recording(unet, patch) as record:
        call_diffusers(unet)
    assert record.phases == [0]
    call: Any = {"model_output": SAMPLE + 1, "timestep": int(bare.timesteps[0]), "sample": SAMPLE + 2}
    assert scheduler.step(**call).prev_sample.equal(bare.step(**call).prev_sample)
    assert scheduler.step(**call, return_dict=False)[0].equal(bare.step(**call).prev_sample)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, through_pickle])
def test_a_copy_of_a_patched_pipeline_runs_on_its_own(duplicate):
    pipeline = tiny_pipeline()
    dense = draw(pipeline)
    patch = todome.apply(pipeline, Downsample(2, stop=0.6))
    reduced = draw(pipeline)
    twin = duplicate(pipeline)
    twin.set_progress_bar_config(disable=True)
    with recording(pipeline.unet, patch) as untouched, recording(twin.unet) as record:
        assert draw(twin).equal(reduced)
    assert record.reduced == window(10, 0, 0.6)
    assert untouched.rows == []
    todome.remove(twin)
    assert unwatched(twin.scheduler)
    assert draw(twin).equal(dense)
    assert draw(pipeline).equal(reduced)


@pytest.mark.parametrize("name", ["DDIM", "Euler", "PNDM"])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, through_pickle])
def test_a_copy_of_a_followed_scheduler_is_a_scheduler(name, duplicate):
    pipeline = tiny_pipeline(SCHEDULERS[name]())
    todome.apply(pipeline, Downsample(2))
    twin, bare = duplicate(pipeline.scheduler), SCHEDULERS[name]()
    for one in (twin, bare):
        one.set_timesteps(4)
    assert loop(one_level_unet(), twin).equal(loop(one_level_unet(), bare))
    assert type(twin.config) is type(pipeline.scheduler.config)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, through_pickle])
def test_a_copy_goes_on_from_where_the_first_one_was_and_leaves_it_there(duplicate):
    pipeline, scheduler = tiny_pipeline(), SCHEDULERS["DDIM"]()
    pipeline.scheduler = scheduler
    patch = todome.apply(pipeline, Downsample(2, stop=0.5))
    scheduler.set_timesteps(4)
    scheduler.step(SAMPLE, scheduler.timesteps[0], SAMPLE)
    twin = duplicate(scheduler)
    with recording(pipeline.unet, patch) as record:
        for one, number in [(twin, 1), (twin, 2), (scheduler, 1)]:
            one.step(SAMPLE, one.timesteps[number], SAMPLE)
            call_diffusers(pipeline.unet)
    assert record.reduced == ([False, False, False] if duplicate is copy.deepcopy else [True, True, False])
    patch.remove()
    for one in (scheduler, twin):
        one.set_timesteps(3)
        assert unwatched(one)


def test_a_state_from_before_the_removal_leaves_no_trace():
    unet, scheduler = one_level_unet(), SCHEDULERS["DDIM"]()
    patch = todome.apply(unet, Downsample(2), scheduler=scheduler)
    state = copy.deepcopy(scheduler.__dict__)
    patch.remove()
    scheduler.__dict__.update(state)
    scheduler.set_timesteps(3)
    assert unwatched(scheduler)


def one_of_many_requests(pipeline: Any, **options: Any) -> Any:
    """A pipeline of its own for each request, with a copy of the scheduler, as servers make them."""
    request = copy.copy(pipeline)
    request.scheduler = copy.deepcopy(pipeline.scheduler)
    return draw(request, **options), request.scheduler


@pytest.mark.parametrize("name", ["DDIM", "Euler", "PNDM", "Heun"])
def test_requests_with_copied_schedulers_draw_what_the_pipeline_draws(name):
    pipeline = tiny_pipeline(SCHEDULERS[name]())
    patch = todome.apply(pipeline, Downsample(2, start=0.1, stop=0.6))
    expected = draw(pipeline)
    schedulers = []
    for _ in range(2):
        picture, scheduler = one_of_many_requests(pipeline)
        schedulers.append(scheduler)
        assert picture.equal(expected)
    assert draw(pipeline).equal(expected)
    schedulers.append(copy.deepcopy(schedulers[0]))
    patch.remove()
    assert all(map(unwatched, [pipeline.scheduler, *schedulers]))


class ViewsPipeline(StableDiffusionPipeline):
    """Denoises views one after the other, each from the scheduler's state as it was when the view was left."""

    def denoise_views(self, views: int, steps: int) -> Any:
        self.scheduler.set_timesteps(steps)
        states = [copy.deepcopy(self.scheduler.__dict__) for _ in range(views)]
        samples = [noise(1, 4, SIDE, SIDE, seed=view) for view in range(views)]
        for timestep in self.scheduler.timesteps:
            for view in range(views):
                self.scheduler.__dict__.update(states[view])
                output = self.unet(samples[view], timestep, text(1)).sample
                samples[view] = self.scheduler.step(output, timestep, samples[view]).prev_sample
                states[view] = copy.deepcopy(self.scheduler.__dict__)
        return samples


@pytest.mark.parametrize("name", ["DDIM", "DPM++ 2M", "PNDM"])
def test_views_are_denoised_as_if_alone(name):
    pipeline = tiny_pipeline(SCHEDULERS[name](), kind=ViewsPipeline)
    patch = todome.apply(pipeline, Downsample(2, stop=0.5))
    alone = pipeline.denoise_views(1, 6)
    with recording(pipeline.unet, patch) as record:
        together = pipeline.denoise_views(3, 6)
    assert together[0].equal(alone[0])
    calls = len(record.reduced) // 3
    assert record.reduced == [inside for inside in window(calls, 0, 0.5) for _ in range(3)]
    patch.remove()
    assert unwatched(pipeline.scheduler)


def test_a_patch_keeps_no_pipeline_alive():
    pipeline = tiny_pipeline()
    patch = todome.apply(pipeline, Downsample(2))
    ghosts = [weakref.ref(thing) for thing in (pipeline, pipeline.scheduler)]
    unet = pipeline.unet
    request: Any = one_of_many_requests(pipeline, steps=2)
    ghosts.append(weakref.ref(request[1]))
    del pipeline, request
    gc.collect()
    assert [ghost() for ghost in ghosts] == [None, None, None]
    call_diffusers(unet)
    patch.remove()
