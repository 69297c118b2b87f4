"""Whose run a call belongs to: runs inside of runs, in turn, in threads, and loops that ask no scheduler for a step."""

import asyncio
import copy
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from diffusers import (
    DDIMInverseScheduler,
    EulerDiscreteScheduler,
    HeunDiscreteScheduler,
    StableDiffusionDiffEditPipeline,
)
from sampling import KNOWN_WARNINGS, SCHEDULERS, every_scheduler, unwatched, window
from torch import Tensor
from zoo import SIDE, ddim, draw, noise, one_level_unet, recording, text, tiny_pipeline

import todome
from todome import Downsample

pytestmark = KNOWN_WARNINGS
HALF = Downsample(2, stop=0.5)
FORMS: dict[str, Any] = {
    "view": lambda t: t,
    "expanded": lambda t: t.expand(1),
    "in a batch": lambda t: t[None],
    "copied": lambda t: t.clone(),
    "cast": lambda t: t.to(torch.float64),
    "number": lambda t: t.item(),
}


def steps_of(unet: Any, scheduler: Any, steps: int = 6, seed: int = 0, form: Any = FORMS["view"]) -> Iterator[Tensor]:
    """A run that pauses after each step. What it yields last is the picture."""
    scheduler.set_timesteps(steps)
    sample = noise(1, 4, SIDE, SIDE, seed=seed)
    for timestep in scheduler.timesteps:
        with torch.no_grad():
            output = unet(sample, form(timestep), text(1)).sample
        sample = scheduler.step(output, timestep, sample).prev_sample
        yield sample


def last_of(run: Iterator[Tensor]) -> Tensor:
    *_, picture = run
    return picture


def followed(kind: Any = ddim, runs: int = 2, lever: Any = HALF) -> tuple[Any, list[Any]]:
    """A UNet, and several schedulers that its patch follows."""
    unet, schedulers = one_level_unet(), [kind() for _ in range(runs)]
    for scheduler in schedulers:
        todome.apply(unet, lever, scheduler=scheduler)
    return unet, schedulers


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["DDIM", "Euler", "Heun", "PNDM", "DPM++ 2M"])
def test_a_timestep_of_any_form_belongs_to_its_step(name, form):
    unet, scheduler = one_level_unet(), SCHEDULERS[name]()
    with todome.apply(unet, HALF, scheduler=scheduler) as patch, recording(unet, patch) as record:
        last_of(steps_of(unet, scheduler, form=FORMS[form]))
    assert record.phases == [*range(len(scheduler.timesteps))]
    assert record.reduced == window(len(record.phases), 0, 0.5)


@pytest.mark.parametrize("form", ["view", "expanded", "in a batch"])
@pytest.mark.parametrize("name", ["DDIM", "Euler", "PNDM"])
def test_runs_in_turn_are_as_if_alone(name, form):
    """Generators, cooperative batching: two runs on one model in one thread."""
    unet, schedulers = followed(SCHEDULERS[name])
    jobs = [(unet, scheduler, 6, seed, FORMS[form]) for seed, scheduler in enumerate(schedulers)]
    alone = [last_of(steps_of(*job)) for job in jobs]
    *_, in_turn = zip(*(steps_of(*job) for job in jobs), strict=True)
    assert all(one.equal(other) for one, other in zip(in_turn, alone, strict=True))


def test_a_run_inside_of_a_run_changes_neither():
    """A preview that a callback draws with another pipeline on the same UNet."""
    outer = tiny_pipeline()
    inner = tiny_pipeline(EulerDiscreteScheduler(steps_offset=1), outer.unet)
    for pipeline in (outer, inner):
        todome.apply(pipeline, HALF)
    alone, preview = draw(outer, steps=6), draw(inner, steps=4)
    previews = []

    def show(pipeline: Any, step: int, timestep: Any, state: Any) -> Any:
        previews.append(draw(inner, steps=4))
        return state

    assert draw(outer, steps=6, callback_on_step_end=show).equal(alone)
    assert all(one.equal(preview) for one in previews)


@pytest.mark.parametrize("workers", [1, 3])
def test_steps_that_a_pool_of_threads_makes_are_of_one_run(workers):
    unet, (scheduler, _) = followed()
    alone = last_of(steps_of(unet, scheduler))

    async def awaited() -> Tensor:
        run, picture = steps_of(unet, scheduler), None
        with ThreadPoolExecutor(workers) as pool:
            loop = asyncio.get_running_loop()
            for _ in range(6):
                picture = await loop.run_in_executor(pool, next, run)
        assert picture is not None
        return picture

    assert asyncio.run(awaited()).equal(alone)


def test_a_scheduler_that_is_swapped_while_another_pipeline_draws():
    first = tiny_pipeline()
    second = tiny_pipeline(ddim(), first.unet)
    for pipeline in (first, second):
        todome.apply(pipeline, HALF)
    alone = draw(second)
    first.scheduler = SCHEDULERS["Euler"]()
    swapped_alone = draw(first)
    reached, go_on = threading.Event(), threading.Event()

    def wait(pipeline: Any, step: int, timestep: Any, state: Any) -> Any:
        if step == 3:
            reached.set()
            assert go_on.wait(30)
        return state

    with ThreadPoolExecutor(1) as pool:
        drawn = pool.submit(draw, second, callback_on_step_end=wait)
        assert reached.wait(30)
        first.scheduler = SCHEDULERS["Euler"]()
        first.scheduler.set_timesteps(10)
        go_on.set()
        assert drawn.result().equal(alone)
    assert draw(first).equal(swapped_alone)


@every_scheduler
def test_threads_with_a_scheduler_each(name):
    unet, schedulers = followed(SCHEDULERS[name], runs=3)
    alone = [last_of(steps_of(unet, one, seed=seed)) for seed, one in enumerate(schedulers)]
    if name in ("Euler ancestral", "DPM++ SDE", "DPM++ 2M SDE", "DDPM", "LCM"):
        pytest.skip("it draws from the one generator of all threads")
    with ThreadPoolExecutor(3) as pool:
        drawn = pool.map(lambda job: last_of(steps_of(unet, job[1], seed=job[0])), enumerate(schedulers))
        assert all(one.equal(other) for one, other in zip(drawn, alone, strict=True))


def test_every_scheduler_of_a_pipeline_is_followed():
    """DiffEdit inverts a picture with a scheduler of its own, and then draws with the other one."""
    pipeline = tiny_pipeline(kind=StableDiffusionDiffEditPipeline, inverse_scheduler=DDIMInverseScheduler())
    given = {"prompt_embeds": text(1), "negative_prompt_embeds": text(1), "num_inference_steps": 6}
    with todome.apply(pipeline, HALF) as patch, recording(pipeline.unet, patch) as record:
        pipeline.invert(image=torch.zeros(1, 3, 2 * SIDE, 2 * SIDE), inpaint_strength=1.0, **given)
    assert record.phases == [*range(6)]
    assert record.reduced == window(6, 0, 0.5)
    assert unwatched(pipeline.inverse_scheduler)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("calls", [1, 2])
def test_a_loop_that_asks_for_no_step_moves_all_the_same(form, calls):
    """As LEDITS++ inverts, and as the samplers of k-diffusion sample."""
    unet, scheduler = one_level_unet(), ddim()
    with todome.apply(unet, HALF, scheduler=scheduler) as patch, recording(unet, patch) as record:
        for _ in range(2):
            scheduler.set_timesteps(4)
            for timestep in scheduler.timesteps:
                for _ in range(calls):
                    unet(noise(1, 4, SIDE, SIDE), FORMS[form](timestep), text(1))
    assert record.phases == 2 * [step for step in range(4) for _ in range(calls)]
    assert record.reduced == 2 * [step < 2 for step in range(4) for _ in range(calls)]


def test_noise_levels_that_are_in_no_schedule_move_too():
    unet, scheduler = one_level_unet(), ddim()
    with todome.apply(unet, HALF, scheduler=scheduler) as patch, recording(unet, patch) as record:
        scheduler.set_timesteps(4)
        for timestep in scheduler.timesteps:
            unet(noise(1, 4, SIDE, SIDE), timestep / 1000, text(1))
    assert record.phases == [0, 1, 2, 3]
    assert record.reduced == [True, True, False, False]


@pytest.mark.parametrize("form", ["view", "expanded", "in a batch"])
def test_views_of_a_step_that_each_make_the_step(form):
    """MultiDiffusion as people write it: the scheduler is asked for a step by each view."""
    unet, scheduler = one_level_unet(), SCHEDULERS["DDIM"]()
    with todome.apply(unet, HALF, scheduler=scheduler) as patch, recording(unet, patch) as record:
        scheduler.set_timesteps(4)
        views = [noise(1, 4, SIDE, SIDE, seed=seed) for seed in range(4)]
        for timestep in scheduler.timesteps:
            for view in range(4):
                output = unet(views[view], FORMS[form](timestep), text(1)).sample
                views[view] = scheduler.step(output, timestep, views[view]).prev_sample
    assert record.phases == [step for step in range(4) for _ in range(4)]
    assert record.reduced == [step < 2 for step in range(4) for _ in range(4)]


@pytest.mark.parametrize("steps", [4, 7])
def test_a_run_that_goes_on_as_a_copy(steps):
    """A pipeline that is copied in the middle of a run: both draw what one would have drawn."""
    pipeline = tiny_pipeline(HeunDiscreteScheduler(steps_offset=1))
    todome.apply(pipeline, HALF)
    alone = last_of(steps_of(pipeline.unet, pipeline.scheduler, steps))
    pipeline.scheduler.set_timesteps(steps)
    sample, twin = noise(1, 4, SIDE, SIDE), None
    for number in range(len(pipeline.scheduler.timesteps)):
        if number == 2:
            twin = copy.deepcopy(pipeline), sample
        sample = one_step(pipeline, number, sample)
    assert twin is not None
    copied, after = twin
    for number in range(2, len(copied.scheduler.timesteps)):
        after = one_step(copied, number, after)
    assert sample.equal(alone)
    assert after.equal(alone)


def one_step(pipeline: Any, number: int, sample: Tensor) -> Tensor:
    timestep = pipeline.scheduler.timesteps[number]
    with torch.no_grad():
        output = pipeline.unet(sample, timestep, text(1)).sample
    return pipeline.scheduler.step(output, timestep, sample).prev_sample
