"""What a run keeps from step to step is its own: each run draws, bit for bit, what it would draw alone."""

import asyncio
import copy
import itertools
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from diffusers import (
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionPanoramaPipeline,
    StableDiffusionPipeline,
)
from running import COPIES, FORMS, HAND, STEPS, VIEWS, computed, dense, followed, guided, last_of, steps_of
from sampling import KNOWN_WARNINGS, SCHEDULERS, every_scheduler
from torch import Tensor
from zoo import SIDE, TEXT, WIDTH, draw, noise, small_unet, text, tiny_pipeline

import todome
from todome import Reuse

pytestmark = KNOWN_WARNINGS
PARTIAL = list("FFFFsFsFsFsF")  # DDIM and its like, in 12 steps
WITH_NOISE = {"Euler ancestral", "DPM++ SDE", "DPM++ 2M SDE", "DDPM", "LCM"}  # from the one generator of all threads


def pipeline(name: str = "DDIM", unet: Any = None, kind: Any = StableDiffusionPipeline) -> Any:
    return tiny_pipeline(SCHEDULERS[name](), unet or small_unet(), kind)


def drawn(pipe: Any, **options: Any) -> Tensor:
    return draw(pipe, **{"steps": STEPS, **options})


def kept_tensors(scheduler: Any) -> list[Tensor]:
    """Of the callers of a run."""
    kept = [one for one in scheduler.step.watch.run.kept.values() if one is not None]
    lines = [line for one in kept for caller in one.callers.values() for line in caller.lines.values()]
    return [line.value for line in lines] + [line.before[1] for line in lines if line.before]


# Whose call it is


@pytest.mark.parametrize("name", ["DDIM", "Euler", "Heun", "PNDM", "PNDM with PRK", "DPM++ 2M"])
def test_a_timestep_of_any_form_draws_the_same(name: str):
    unet, (scheduler,) = followed(name)
    words, pictures = [], []
    for form in FORMS.values():
        with computed(unet) as word:
            pictures.append(last_of(steps_of(unet, scheduler, form=form)))
        words.append(word)
    assert "s" in words[0]
    assert words == [words[0]] * len(FORMS)
    assert all(picture.equal(pictures[0]) for picture in pictures)
    assert not pictures[0].equal(dense(unet, scheduler))


@every_scheduler
def test_every_scheduler_draws_the_same_again(name: str):
    pipe = pipeline(name)
    full = drawn(pipe)
    with todome.apply(pipe, HAND):
        pictures = [drawn(pipe) for _ in range(2)]
        assert not kept_tensors(pipe.scheduler)
    assert pictures[0].equal(pictures[1]) or name in WITH_NOISE
    assert not pictures[0].equal(full)
    with todome.apply(pipe, Reuse(every=1)):
        assert drawn(pipe).equal(full) or name in WITH_NOISE


@pytest.mark.parametrize("form", VIEWS)
@pytest.mark.parametrize("name", ["DDIM", "Euler", "Heun", "PNDM"])
def test_runs_in_turn_are_as_if_alone(name: str, form: str):
    unet, schedulers = followed(name, runs=2)
    jobs = [(unet, scheduler, seed, FORMS[form]) for seed, scheduler in enumerate(schedulers)]
    alone = [last_of(steps_of(*job)) for job in jobs]
    *_, in_turn = zip(*(steps_of(*job) for job in jobs), strict=True)
    assert all(one.equal(other) for one, other in zip(in_turn, alone, strict=True))


@pytest.mark.parametrize("lever", [Reuse(every=2, warmup=0.3, stages=0), Reuse(keep=40)], ids=str)
def test_whatever_is_left_out_belongs_to_its_run(lever: Reuse):
    """In turn, in threads, and after a run that was broken off."""
    unet, schedulers = followed("DPM++ 2M", 2, lever)
    jobs: list[Any] = [(unet, scheduler, seed, FORMS["view"], 25) for seed, scheduler in enumerate(schedulers)]
    alone = [last_of(steps_of(*job)) for job in jobs]
    *_, in_turn = zip(*(steps_of(*job) for job in jobs), strict=True)
    with ThreadPoolExecutor(2) as pool:
        in_threads = list(pool.map(lambda job: last_of(steps_of(*job)), jobs))
    for job in jobs:
        break_off(unet, steps_of(*job), 9)
    again = [last_of(steps_of(*job)) for job in jobs]
    for found in (in_turn, in_threads, again):
        assert all(one.equal(other) for one, other in zip(found, alone, strict=True))
    assert not alone[0].equal(dense(unet, schedulers[0], steps=25))


@pytest.mark.parametrize("ahead", [0, 6])
@pytest.mark.parametrize("form", COPIES)
def test_runs_in_turn_that_nothing_tells_apart_are_computed(form: str, ahead: int):
    """Copied timesteps say nothing of whose they are. The one that was first draws its share until the other begins."""
    unet, schedulers = followed(runs=2)
    first, second = (steps_of(unet, one, seed, FORMS[form]) for seed, one in enumerate(schedulers))
    with computed(unet) as before:
        list(itertools.islice(first, ahead))
    with computed(unet) as word:
        *_, (picture, _) = itertools.zip_longest(second, first)
    assert set(word) == {"F"}
    assert before == PARTIAL[:ahead]
    assert picture.equal(dense(unet, schedulers[1], seed=1))


@every_scheduler
def test_threads_with_a_scheduler_each(name: str):
    if name in WITH_NOISE:
        pytest.skip("it draws from the one generator of all threads")
    unet, schedulers = followed(name, runs=4)
    alone = [last_of(steps_of(unet, one, seed)) for seed, one in enumerate(schedulers)]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda job: last_of(steps_of(unet, job[1], job[0])), enumerate(schedulers))
        assert all(one.equal(other) for one, other in zip(found, alone, strict=True))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("workers", [1, 3])
def test_steps_that_a_pool_of_threads_makes_are_of_one_run(workers: int, form: str):
    unet, (scheduler, _) = followed(runs=2)
    alone = last_of(steps_of(unet, scheduler))

    async def awaited() -> list[Tensor]:
        run = steps_of(unet, scheduler, form=FORMS[form])
        with ThreadPoolExecutor(workers) as pool:
            loop = asyncio.get_running_loop()
            return [await loop.run_in_executor(pool, next, run) for _ in range(STEPS)]

    with computed(unet) as word:
        *_, picture = asyncio.run(awaited())
    if form in VIEWS or workers == 1:
        assert word == PARTIAL
        assert picture.equal(alone)


@pytest.mark.parametrize("inner", ["DDIM", "Euler"])
def test_a_run_inside_of_a_run_changes_neither(inner: str):
    """A preview that a callback draws with another pipeline on the same UNet."""
    pipe = pipeline()
    other = pipeline(inner, pipe.unet)
    for one in (pipe, other):
        todome.apply(one, HAND)
    alone, preview = drawn(pipe), drawn(other, steps=10)
    previews = []

    def show(pipe: Any, step: int, timestep: Any, state: Any) -> Any:
        if step % 3 == 0:
            previews.append(drawn(other, steps=10))
        return state

    assert drawn(pipe, callback_on_step_end=show).equal(alone)
    assert all(one.equal(preview) for one in previews)


def test_a_run_inside_of_one_that_hands_out_copies_is_computed():
    unet, (outer, inner) = followed(runs=2)
    run = steps_of(unet, outer, form=FORMS["copied"])
    list(itertools.islice(run, 5))
    with computed(unet) as word:
        picture = last_of(steps_of(unet, inner, 1, FORMS["copied"]))
    assert word == ["F"] * STEPS
    with computed(unet) as word:
        last_of(run)
    assert set(word) == {"F"}
    assert not kept_tensors(inner)
    assert picture.equal(dense(unet, inner, seed=1))


def test_calls_outside_of_the_run_are_computed_and_change_nothing():
    """In the middle of a run, by the same thread and by another: the timestep is nobody's."""
    unet, (scheduler,) = followed()
    alone = last_of(steps_of(unet, scheduler))
    run, sample = steps_of(unet, scheduler), noise(1, 4, SIDE, SIDE)
    for _ in range(STEPS - 1):
        next(run)
        for timestep in (torch.tensor(500), 500):
            with computed(unet) as word, ThreadPoolExecutor(1) as pool:
                own, others = guided(unet, sample, timestep), pool.submit(guided, unet, sample, timestep).result()
            assert word == ["F", "F"]
            assert own.equal(others)
    assert last_of(run).equal(alone)


def test_a_model_outside_of_any_run_is_computed():
    unet, _ = followed()
    with computed(unet) as word:
        for timestep in range(900, 0, -50):
            guided(unet, noise(1, 4, SIDE, SIDE), timestep)
    assert set(word) == {"F"}


def test_a_host_that_says_where_it_is_tells_no_noise_levels():
    unet = small_unet()
    patch = todome.apply(unet, HAND)
    with computed(unet) as word:
        for step in range(STEPS):
            patch.at(step, STEPS)
            guided(unet, noise(1, 4, SIDE, SIDE), 1000 - step)
    assert word == ["F"] * STEPS


# Runs that end otherwise, or begin otherwise


class Broken(Exception):
    pass


def break_off(unet: Any, run: Iterator[Tensor], steps: int) -> None:
    """So many steps, and then an error in the middle of the model."""

    def fail(*_: Any) -> None:
        raise Broken

    for _ in range(steps):
        next(run)
    failing = unet.mid_block.register_forward_hook(fail)
    with pytest.raises(Broken):
        list(run)
    failing.remove()


@pytest.mark.parametrize("name", ["DDIM", "Euler", "Heun"])
@pytest.mark.parametrize("steps", [0, 1, 4, 6])
def test_a_run_that_is_broken_off_and_drawn_again(name: str, steps: int):
    unet, (scheduler,) = followed(name)
    alone = last_of(steps_of(unet, scheduler))
    break_off(unet, steps_of(unet, scheduler, seed=1), steps)
    assert last_of(steps_of(unet, scheduler)).equal(alone)


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 2, 4, 7])
def test_a_loop_that_is_broken_off_and_begun_again_without_setting_it_up(steps: int, called: bool):
    """In the middle of a call, or after it and before the step: then it may be one more call of that step."""
    unet, (scheduler,) = followed()
    alone = last_of(steps_of(unet, scheduler))
    run = steps_of(unet, scheduler, seed=1)
    if called:
        for _ in range(steps):
            next(run)
        guided(unet, noise(1, 4, SIDE, SIDE, seed=1), scheduler.timesteps[steps])
    else:
        break_off(unet, run, steps)
    assert last_of(steps_of(unet, scheduler, set_up=False)).equal(alone)


def test_a_loop_that_is_run_twice_without_setting_it_up():
    unet, (scheduler,) = followed()
    alone = last_of(steps_of(unet, scheduler))
    for form in FORMS.values():
        with computed(unet) as word:
            assert last_of(steps_of(unet, scheduler, set_up=False, form=form)).equal(alone)
        assert word == PARTIAL


def test_a_call_that_fails_leaves_what_was_there():
    unet, (scheduler,) = followed()
    alone = last_of(steps_of(unet, scheduler))

    def persistent(unet: Any, sample: Tensor, timestep: Any) -> Tensor:
        failing = unet.conv_out.register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            guided(unet, sample + 1, timestep)
        failing.remove()
        return guided(unet, sample, timestep)

    assert last_of(steps_of(unet, scheduler, predict=persistent)).equal(alone)


@pytest.mark.parametrize("form", FORMS)
def test_a_loop_that_asks_for_no_step(form: str):
    """As LEDITS++ inverts, and as the samplers of k-diffusion sample."""
    unet, (scheduler,) = followed()
    scheduler.set_timesteps(STEPS)
    for _ in range(2):
        with computed(unet) as word:
            for number, timestep in enumerate(scheduler.timesteps):
                guided(unet, noise(1, 4, SIDE, SIDE, seed=number), FORMS[form](timestep))
        assert word == PARTIAL
        assert not kept_tensors(scheduler)


@pytest.mark.parametrize("name", ["DDIM", "Euler", "DPM++ 2M"])
def test_pictures_from_pictures_after_pictures_from_text(name: str):
    """At several strengths, with the scheduler in common, and in any order."""
    pipe = pipeline(name)
    other = tiny_pipeline(pipe.scheduler, pipe.unet, StableDiffusionImg2ImgPipeline)
    strengths = [{"strength": strength, "steps": 20} for strength in (0.9, 0.6, 0.5)]
    with todome.apply(other, HAND):
        alone = [drawn(other, **options) for options in strengths]
    todome.apply(pipe, HAND)
    words = []
    for options, picture in zip(strengths, alone, strict=True):
        drawn(pipe)
        with computed(pipe.unet) as word:
            assert drawn(other, **options).equal(picture)
        words.append("".join(word))
    assert words == ["FFFFsFsFsFsFsFsFsF", "FFsFsFsFsFsF", "FFsFsFsFsF"]


def flow(unet: Any, sample: Tensor, timestep: Tensor) -> Tensor:
    """As FLUX calls its model: with a copy of the timestep, of another size and type."""
    with torch.no_grad():
        return unet(sample, timestep.expand(1).to(torch.bfloat16) / 1000, text(1)).sample


def test_the_first_step_of_a_run_with_copied_timesteps_is_where_it_begins():
    unet, scheduler = small_unet(), FlowMatchEulerDiscreteScheduler()
    todome.apply(unet, HAND, scheduler=scheduler)
    scheduler.set_timesteps(20)
    scheduler.set_begin_index(8)
    with computed(unet, rows=1) as word:
        last_of(steps_of(unet, scheduler, set_up=False, first=8, predict=flow))
    assert "".join(word) == "FFSFSFSFSFSF"


# Changes in the middle of a run


def without_guidance(pipe: Any) -> dict[str, Tensor]:
    pipe._guidance_scale = 0.0
    return {"latents": noise(1, 4, SIDE, SIDE), "prompt_embeds": text(1)}


def in_double(pipe: Any) -> dict[str, Tensor]:
    pipe.unet.to(torch.float64)
    return {"latents": noise(1, 4, SIDE, SIDE).double(), "prompt_embeds": text(2).double()}


CHANGES: dict[str, Any] = {
    "guidance": without_guidance,
    "type": in_double,
    "prompt": lambda pipe: {"latents": noise(1, 4, SIDE, SIDE), "prompt_embeds": noise(2, TEXT + 3, WIDTH)},
    "batch": lambda pipe: {"latents": noise(2, 4, SIDE, SIDE), "prompt_embeds": text(4)},
    "size": lambda pipe: {"latents": noise(1, 4, SIDE, 2 * SIDE), "prompt_embeds": text(2)},
}


def after(step: int, change: Any) -> dict[str, Any]:
    """A callback that changes the pipeline and the tensors of its loop after a step."""

    def changed(pipe: Any, number: int, timestep: Any, state: Any) -> Any:
        return change(pipe) if number == step else state

    return {"callback_on_step_end": changed, "callback_on_step_end_tensor_inputs": ["latents", "prompt_embeds"]}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_the_middle_of_a_run_begins_anew(name: str):
    """What follows is what is drawn where the patch comes on at that moment."""
    change = CHANGES[name]
    pipe, late = pipeline(), pipeline()
    todome.apply(pipe, HAND)
    with computed(pipe.unet) as word:
        found = drawn(pipe, steps=20, **after(7, change))
    expected = drawn(late, steps=20, **after(7, lambda pipe: change(pipe) | {"patch": todome.apply(pipe, HAND)}))
    assert word[:8] == list("FFFFFFsF")
    assert found.equal(expected)
    full = drawn(pipeline(), steps=20, **after(7, change))
    assert found.shape == full.shape
    assert not found.equal(full)


def test_guidance_that_comes_and_goes():
    """What a caller kept is not used when it has been away: it is of other noise levels."""
    unet, (scheduler,) = followed()

    def sometimes(unet: Any, sample: Tensor, timestep: Any) -> Tensor:
        if 6 <= list(scheduler.timesteps).index(timestep) < 8:
            with torch.no_grad():
                return unet(sample, timestep, text(1)).sample
        return guided(unet, sample, timestep)

    with computed(unet) as word:
        last_of(steps_of(unet, scheduler, predict=sometimes))
    assert "".join(word) == "FFFFsF" + "ff" + "FFsF"


def test_pictures_that_begin_alike_are_not_taken_for_guidance():
    """With one seed for all of them. After a step they differ, and what was kept of one half is of no use."""
    unet, (scheduler,) = followed(lever=Reuse(every=2, warmup=0.0, stages=1))
    sample, words = noise(1, 4, SIDE, SIDE).expand(2, -1, -1, -1), noise(2, TEXT, WIDTH)
    scheduler.set_timesteps(STEPS)
    with torch.no_grad(), computed(unet) as word:
        for timestep in scheduler.timesteps:
            sample = scheduler.step(unet(sample, timestep, words).sample, timestep, sample).prev_sample
    assert "".join(word) == "FFFFSFSFSFSF"


def test_a_caller_that_comes_back_is_looked_at_again():
    """First it was guidance; after a step of another kind it is two pictures."""
    unet, (scheduler,) = followed()
    scheduler.set_timesteps(20)
    pictures = noise(2, 4, SIDE, SIDE)
    with torch.no_grad(), computed(unet) as word:
        for number, timestep in enumerate(scheduler.timesteps):
            latents = pictures[:1].expand(2, -1, -1, -1) if number < 8 else pictures[: 1 + (number > 8)]
            unet(latents, timestep, text(len(latents)))
            scheduler.step(pictures, timestep, pictures)
    assert "".join(word) == "FFFFFFsF" + "f" + "FFF" + "SFSFSFSF"


def two_calls(unet: Any, sample: Tensor, timestep: Any) -> Tensor:
    with torch.no_grad():
        conditional, unconditional = (unet(sample, timestep, text(1) * weight).sample for weight in (1, 0))
    return unconditional + 5 * (conditional - unconditional)


def test_guidance_in_two_calls_has_two_callers():
    unet, (scheduler,) = followed()
    with computed(unet, rows=1) as word:
        found = last_of(steps_of(unet, scheduler, predict=two_calls))
    assert "".join(word) == "".join(2 * kind for kind in "FFFFSFSFSFSF")
    assert found.equal(last_of(steps_of(unet, scheduler, predict=two_calls)))
    torch.testing.assert_close(found, dense(unet, scheduler, predict=two_calls), rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    ("first", "expected"), [(3, "FF FF FF SS FF"), (4, "SF FF FS FF SS"), (5, "FF FF FF SS FF"), (6, "SF FF FS FF SS")]
)
def test_another_number_of_calls_in_a_step_begins_anew(first: int, expected: str):
    """From some step on the conditional call comes second: what was the first caller is none any more."""
    unet, (scheduler,) = followed()

    def more(unet: Any, sample: Tensor, timestep: Any) -> Tensor:
        index = list(scheduler.timesteps).index(timestep)
        with torch.no_grad():
            calls = [text(1) * 0, text(1)] if index >= first else [text(1)]
            return [unet(sample, timestep, words).sample for words in calls][-1]

    with computed(unet, rows=1) as word:
        last_of(steps_of(unet, scheduler, predict=more))
    calls = ["".join(word[first + 2 * step : first + 2 * step + 2]) for step in range(STEPS - first)]
    assert " ".join(calls[:5]) == expected


# Pipelines, schedulers and their copies


def test_pipelines_with_a_model_in_common_each_with_its_scheduler():
    first, second = pipeline(), pipeline("Heun")
    second.unet = first.unet
    for one in (first, second):
        todome.apply(one, HAND)
    alone = [drawn(one) for one in (first, second)]
    assert all(drawn(one).equal(picture) for one, picture in zip((first, second) * 2, alone * 2, strict=True))


def test_the_guidance_of_a_pipeline_is_its_own():
    """Which steps are full follows from the guidance scale: of the pipeline that draws, not of one drawn before."""
    first, second = pipeline("DPM++ 2M"), pipeline("DPM++ 2M")
    second.unet = first.unet
    settings = [(first, {"guidance_scale": 2.0, "steps": 25}), (second, {"guidance_scale": 12.0, "steps": 25})]
    alone = []
    for pipe, options in settings:
        with todome.apply(pipe, Reuse(keep=40)):
            alone.append(drawn(pipe, **options))
    for pipe, _ in settings:
        todome.apply(pipe, Reuse(keep=40))
    for (pipe, options), picture in zip(2 * settings, 2 * alone, strict=True):
        assert drawn(pipe, **options).equal(picture)


def test_a_second_pass_at_another_size():
    pipe = pipeline()
    large = tiny_pipeline(pipe.scheduler, pipe.unet, StableDiffusionImg2ImgPipeline)
    second = {"strength": 0.6, "steps": 20, "grid": (2 * SIDE, 2 * SIDE)}
    with todome.apply(pipe, HAND):
        alone = drawn(pipe)
    with todome.apply(large, HAND):
        refined = drawn(large, **second)
    todome.apply(pipe, HAND)
    for _ in range(2):
        assert drawn(pipe).equal(alone)
        assert drawn(large, **second).equal(refined)


def test_a_scheduler_that_is_swapped():
    """Between runs, and in the middle of one that goes on with the timesteps of the old one."""
    pipe = pipeline()
    todome.apply(pipe, HAND)
    alone, old = drawn(pipe), pipe.scheduler
    pipe.scheduler = EulerDiscreteScheduler(steps_offset=1)
    other = drawn(pipe)

    def swap(pipe: Any, number: int, timestep: Any, state: Any) -> Any:
        if number == 5:
            pipe.scheduler = SCHEDULERS["DDIM"]()
            pipe.scheduler.set_timesteps(STEPS)
        return state

    pipe.scheduler = old
    with computed(pipe.unet) as word:
        found = drawn(pipe, callback_on_step_end=swap)
    assert word[:6] == PARTIAL[:6]
    assert found.equal(alone) or "s" in word[6:]
    assert drawn(pipe).equal(alone)
    pipe.scheduler = EulerDiscreteScheduler(steps_offset=1)
    assert drawn(pipe).equal(other)


def one_step(pipe: Any, number: int, sample: Tensor) -> Tensor:
    timestep = pipe.scheduler.timesteps[number]
    return pipe.scheduler.step(guided(pipe.unet, sample, timestep), timestep, sample).prev_sample


@pytest.mark.parametrize("name", ["DDIM", "DPM++ 2M"])
@pytest.mark.parametrize("step", [1, 5, 6])
def test_a_run_that_goes_on_as_a_copy(name: str, step: int):
    """A pipeline that is copied in the middle of a run: both draw what one would have drawn."""
    pipe = pipeline(name)
    todome.apply(pipe, HAND)
    alone = last_of(steps_of(pipe.unet, pipe.scheduler))
    pipe.scheduler.set_timesteps(STEPS)
    sample, twin = noise(1, 4, SIDE, SIDE), (pipe, torch.zeros(0))
    for number in range(STEPS):
        if number == step:
            twin = copy.deepcopy(pipe), sample
        sample = one_step(pipe, number, sample)
    copied, after = twin
    with computed(copied.unet) as word:
        for number in range(step, STEPS):
            after = one_step(copied, number, after)
    assert sample.equal(alone)
    assert after.equal(alone)
    assert word == PARTIAL[step:]


def test_a_run_that_goes_on_from_a_file_computes_two_steps_first():
    pipe = pipeline()
    todome.apply(pipe, HAND)
    pipe.scheduler.set_timesteps(20)
    sample = noise(1, 4, SIDE, SIDE)
    for number in range(8):
        sample = one_step(pipe, number, sample)
    twin = pickle.loads(pickle.dumps(pipe))
    with computed(twin.unet) as word:
        for number in range(8, 20):
            sample = one_step(twin, number, sample)
    assert "".join(word) == "FFsFsFsFsFsF"


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda pipe: pickle.loads(pickle.dumps(pipe))], ids=["copy", "pickle"]
)
def test_a_copy_of_a_pipeline_draws_the_same(copied: Any):
    pipe = pipeline()
    todome.apply(pipe, HAND)
    alone = drawn(pipe)
    twin = copied(pipe)
    twin.set_progress_bar_config(disable=True)
    with computed(pipe.unet) as untouched, computed(twin.unet) as word:
        assert drawn(twin).equal(alone)
    assert word == PARTIAL
    assert not untouched
    todome.remove(twin)
    assert type(twin.unet) is type(small_unet())
    assert drawn(pipe).equal(alone)


def test_requests_with_copies_of_the_scheduler():
    """A pipeline of its own for each request, around the same model, as servers make them."""
    pipe = pipeline("DPM++ 2M")
    todome.apply(pipe, HAND)

    def request(seed: int) -> Tensor:
        own = copy.copy(pipe)
        own.scheduler = copy.deepcopy(pipe.scheduler)
        return drawn(own, latents=noise(1, 4, SIDE, SIDE, seed=seed))

    alone = [drawn(pipe, latents=noise(1, 4, SIDE, SIDE, seed=seed)) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(request, range(4)))
    assert all(one.equal(other) for one, other in zip(found, alone, strict=True))


class ViewsPipeline(StableDiffusionPipeline):
    """Denoises views one after the other in each step."""

    def denoise_views(self, views: int, saved: bool, form: Any = FORMS["view"]) -> list[Tensor]:
        self.scheduler.set_timesteps(STEPS)
        states = [copy.deepcopy(self.scheduler.__dict__) for _ in range(views)]
        samples = [noise(1, 4, SIDE, SIDE, seed=view) for view in range(views)]
        for timestep in self.scheduler.timesteps:
            for view in range(views):
                if saved:
                    self.scheduler.__dict__.update(states[view])
                output = guided(self.unet, samples[view], form(timestep))
                samples[view] = self.scheduler.step(output, timestep, samples[view]).prev_sample
                states[view] = copy.deepcopy(self.scheduler.__dict__) if saved else {}
        return samples


@pytest.mark.parametrize(("name", "saved"), [("DDIM", True), ("DPM++ 2M", True), ("PNDM", True), ("DDIM", False)])
def test_views_of_a_step_are_as_if_alone(name: str, saved: bool):
    pipe = tiny_pipeline(SCHEDULERS[name](), small_unet(), ViewsPipeline)
    todome.apply(pipe, HAND)
    alone = [last_of(steps_of(pipe.unet, pipe.scheduler, seed)) for seed in range(3)]
    together = pipe.denoise_views(3, saved)
    assert all(one.equal(other) for one, other in zip(together, alone, strict=True))


class Panorama(StableDiffusionPanoramaPipeline):
    def get_views(self, *args: Any, **options: Any) -> list[tuple[int, int, int, int]]:
        return [(0, SIDE, left, left + SIDE) for left in (0, 4, 8)]


@pytest.mark.parametrize("name", ["DDIM", "DPM++ 2M"])
def test_a_panorama_of_diffusers(name: str):
    """Its views begin with one saved state in common: all but the first compute some steps more."""
    pipe = tiny_pipeline(SCHEDULERS[name](), small_unet(), Panorama)
    options = {"grid": (SIDE, 2 * SIDE)}
    full = drawn(pipe, **options)
    with todome.apply(pipe, HAND), computed(pipe.unet) as word:
        found = drawn(pipe, **options)
    views = ["".join(word[view::3]) for view in range(3)]
    assert views == ["FFFFsFsFsFsF"] * 3
    torch.testing.assert_close(found, full, rtol=0.2, atol=0.2)
