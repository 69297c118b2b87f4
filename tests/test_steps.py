"""Real pipelines with real schedulers: where the reduction is on, whose turn it is, and that nothing is left behind."""

import copy
import gc
import inspect
import pickle
import weakref
from itertools import pairwise
from types import SimpleNamespace
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
    StableDiffusionImg2ImgPipeline,
    StableDiffusionInpaintPipeline,
    UniPCMultistepScheduler,
)
from pipelines import SIDE, ddim, draw, one_level_unet, recording, tiny_ldm, tiny_pipeline
from torch.utils._python_dispatch import TorchDispatchMode

import todome
from todome import Downsample, Merge

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # diffusers' schedulers, numpy 2
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
HALF: Any = {"strength": 0.5}
WINDOWS = [(0.0, 0.6), (0.3, 1.0), (0.25, 0.75), (0.0, 0.55)]

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
    text = torch.linspace(-1, 1, 24).view(1, 3, 8)
    for timestep in scheduler.timesteps:
        noise = sum(unet(sample, timestep, text * (1 - i)).sample for i in range(calls)) / calls
        sample = scheduler.step(noise, timestep, sample).prev_sample
    return sample


def untapped(scheduler: Any) -> bool:
    return not {"step", "set_timesteps"} & vars(scheduler).keys()


@every_scheduler
def test_every_executed_call_is_counted(name):
    record = run(tiny_pipeline(SCHEDULERS[name]()), Downsample(2))
    assert record.turns == list(range(CALLS.get(name, 10)))
    assert all(record.reduced)


@every_scheduler
@pytest.mark.parametrize(("start", "stop"), WINDOWS)
def test_the_window_is_a_share_of_the_executed_calls(name, start, stop):
    record = run(tiny_pipeline(SCHEDULERS[name]()), Downsample(2, start=start, stop=stop))
    assert record.reduced == window(CALLS.get(name, 10), start, stop)


@every_scheduler
def test_the_same_seed_gives_the_same_picture_twice(name):
    pipeline = tiny_pipeline(SCHEDULERS[name]())
    dense = draw(pipeline)
    patch = todome.apply(pipeline, Downsample(2, seed=3))
    with recording(pipeline.unet, patch) as record:
        once, again = draw(pipeline), draw(pipeline)
    assert once.equal(again)
    assert not once.equal(dense)
    assert record.turns == 2 * list(range(CALLS.get(name, 10)))
    patch.remove()
    assert draw(pipeline).equal(dense)


@pytest.mark.parametrize("reduction", [Downsample(2), Downsample(2, phase="random"), Merge()], ids=repr)
def test_another_seed_gives_another_picture(reduction):
    pipeline = tiny_pipeline()
    other = type(reduction)(**{**vars(reduction), "seed": 1})
    pictures = []
    for one in (reduction, other, reduction):
        with todome.apply(pipeline, one):
            pictures.append(draw(pipeline))
    assert pictures[0].equal(pictures[2])
    assert not pictures[0].equal(pictures[1])


def test_every_token_is_a_key_exactly_once_in_four_steps():
    record = run(tiny_pipeline(), Downsample(2))
    for begin in range(7):
        seen = [row for rows in record.rows[begin : begin + 4] for row in rows]
        assert sorted(seen) == list(range(SIDE * SIDE))


def test_fixed_keeps_the_corners_at_every_step():
    record = run(tiny_pipeline(), Downsample(2, phase="fixed"))
    corners = [row * SIDE + column for row in range(0, SIDE, 2) for column in range(0, SIDE, 2)]
    assert record.rows == [corners] * 10


def test_random_keys_neither_stay_nor_cycle():
    rows = run(tiny_pipeline(), Downsample(2, phase="random"), steps=12).rows
    assert {len(kept) for kept in rows} == {SIDE * SIDE // 4}
    assert not all(before == after for before, after in pairwise(rows))
    assert rows[:4] != rows[4:8]


def test_a_run_of_another_length_resets_the_clock():
    pipeline = tiny_pipeline()
    patch = todome.apply(pipeline, Downsample(2, stop=0.5))
    for steps in (4, 10, 6):
        with recording(pipeline.unet, patch) as record:
            draw(pipeline, steps=steps)
        assert record.reduced == window(steps, 0, 0.5)
        assert record.turns == list(range(steps))


def test_a_run_that_was_broken_off_does_not_disturb_the_next():
    pipeline = tiny_pipeline()
    patch = todome.apply(pipeline, Downsample(2, stop=0.5))

    def break_off(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if step == 3:
            raise KeyboardInterrupt
        return tensors

    with pytest.raises(KeyboardInterrupt):
        draw(pipeline, callback_on_step_end=break_off)
    with recording(pipeline.unet, patch) as record:
        draw(pipeline)
    assert record.reduced == window(10, 0, 0.5)


@pytest.mark.parametrize("strength", [0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("name", ["DDIM", "DDPM", "Euler", "PNDM", "PNDM with PRK", "Heun", "DPM++ 2M", "UniPC", "LCM"])
def test_img2img_counts_the_steps_it_executes(name, strength):
    pipeline = tiny_pipeline(SCHEDULERS[name](), kind=StableDiffusionImg2ImgPipeline)
    for stop in (0.55, 0.6):
        record = run(pipeline, Downsample(2, stop=stop), strength=strength)
        assert record.turns == list(range(len(record.turns)))
        assert record.reduced == window(len(record.turns), 0, stop)


def test_img2img_executes_half_of_the_steps_with_half_of_the_strength():
    record = run(tiny_pipeline(kind=StableDiffusionImg2ImgPipeline), Downsample(2, stop=0.6), strength=0.5)
    assert record.reduced == [True, True, True, False, False]


@pytest.mark.parametrize("name", ["DDIM", "Euler", "PNDM"])
@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_inpainting(name, strength):
    pipeline = tiny_pipeline(SCHEDULERS[name](), kind=StableDiffusionInpaintPipeline)
    record = run(pipeline, Downsample(2, start=0.2, stop=0.6), strength=strength)
    assert record.reduced == window(len(record.turns), 0.2, 0.6)


def test_inpainting_with_nine_channels():
    pipeline = tiny_pipeline(unet=one_level_unet(in_channels=9), kind=StableDiffusionInpaintPipeline)
    assert run(pipeline, Downsample(2, stop=0.6)).reduced == window(10, 0, 0.6)


def test_timesteps_of_a_users_own():
    record = run(tiny_pipeline(SCHEDULERS["Euler"]()), Downsample(2, stop=0.5), timesteps=[900, 700, 300, 100])
    assert record.reduced == [True, True, False, False]


def test_pipelines_that_share_model_and_scheduler():
    first = tiny_pipeline()
    second = tiny_pipeline(first.scheduler, first.unet, StableDiffusionImg2ImgPipeline)
    patch = todome.apply(first, Downsample(2, stop=0.6))
    for pipeline, calls, options in [(first, 10, {}), (second, 5, HALF), (first, 10, {})]:
        with recording(first.unet, patch) as record:
            draw(pipeline, **options)
        assert record.turns == list(range(calls))
        assert record.reduced == window(calls, 0, 0.6)
    patch.remove()
    assert untapped(first.scheduler)


def test_pipelines_that_share_a_model_with_schedulers_of_their_own():
    first = tiny_pipeline()
    second = tiny_pipeline(SCHEDULERS["Heun"](), first.unet)
    todome.apply(first, Downsample(2, stop=0.6))
    patch = todome.apply(second, Downsample(2, stop=0.6))
    for pipeline, calls in [(first, 10), (second, 19), (first, 10)]:
        with recording(first.unet, patch) as record:
            draw(pipeline)
        assert record.turns == list(range(calls))
        assert record.reduced == window(calls, 0, 0.6)
    patch.remove()
    assert untapped(first.scheduler)
    assert untapped(second.scheduler)


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
    for pipeline in (second, first, second):
        with recording(first.unet, patch) as record:
            draw(pipeline)
        assert record.turns == list(range(CALLS.get(name, 10)))


@pytest.mark.parametrize("name", ["DDIM", "Euler", "Heun"])
def test_a_window_on_a_pipeline_that_was_not_applied_is_an_error(name):
    first = tiny_pipeline(SCHEDULERS[name]())
    second = tiny_pipeline(SCHEDULERS[name](), first.unet)
    todome.apply(first, Downsample(2, stop=0.6))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"outside of a run.*scheduler=.*patch\.at\(step, steps\)"):
            draw(second)
        draw(first)


@every_scheduler
def test_the_scheduler_is_swapped_after_apply(name):
    pipeline = tiny_pipeline()
    patch = todome.apply(pipeline, Downsample(2, stop=0.6))
    draw(pipeline)
    old, pipeline.scheduler = pipeline.scheduler, SCHEDULERS[name]()
    with recording(pipeline.unet, patch) as record:
        draw(pipeline)
        draw(pipeline)
    assert record.reduced == 2 * window(CALLS.get(name, 10), 0, 0.6)
    patch.remove()
    assert untapped(old)
    assert untapped(pipeline.scheduler)


def test_the_scheduler_is_swapped_by_from_config():
    pipeline = tiny_pipeline()
    with todome.apply(pipeline, Downsample(2, stop=0.6)) as patch, recording(pipeline.unet, patch) as record:
        pipeline.scheduler = EulerDiscreteScheduler.from_config(pipeline.scheduler.config)
        draw(pipeline)
    assert record.reduced == window(10, 0, 0.6)


def test_the_scheduler_is_swapped_for_img2img():
    pipeline = tiny_pipeline(kind=StableDiffusionImg2ImgPipeline)
    with todome.apply(pipeline, Downsample(2, stop=0.6)) as patch, recording(pipeline.unet, patch) as record:
        pipeline.scheduler = SCHEDULERS["Euler"]()
        draw(pipeline, strength=0.5)
    assert record.reduced == window(5, 0, 0.6)


def test_the_scheduler_is_swapped_there_and_back():
    pipeline = tiny_pipeline()
    old, new = pipeline.scheduler, SCHEDULERS["Euler"]()
    with todome.apply(pipeline, Downsample(2, stop=0.6)) as patch, recording(pipeline.unet, patch) as record:
        for scheduler in (new, old, new):
            pipeline.scheduler = scheduler
            draw(pipeline)
    assert record.reduced == 3 * window(10, 0, 0.6)
    assert untapped(old)
    assert untapped(new)


def test_the_scheduler_is_swapped_and_never_run():
    pipeline = tiny_pipeline()
    old = pipeline.scheduler
    patch = todome.apply(pipeline, Downsample(2))
    pipeline.scheduler = SCHEDULERS["Euler"]()
    patch.remove()
    assert untapped(old)
    assert untapped(pipeline.scheduler)


@pytest.mark.parametrize("name", ["DDIM", "Euler", "Heun", "PNDM"])
@pytest.mark.parametrize("set_first", [False, True])
def test_a_bare_model_follows_a_given_scheduler(name, set_first):
    unet, scheduler = one_level_unet(), SCHEDULERS[name]()
    if set_first:
        scheduler.set_timesteps(10)
    patch = todome.apply(unet, Downsample(2, stop=0.6), scheduler=scheduler)
    if not set_first:
        scheduler.set_timesteps(10)
    with recording(unet, patch) as record:
        loop(unet, scheduler)
    assert record.turns == list(range(CALLS.get(name, 10)))
    assert record.reduced == window(CALLS.get(name, 10), 0, 0.6)


def test_both_calls_of_a_step_have_the_same_turn():
    unet, scheduler = one_level_unet(), ddim()
    patch = todome.apply(unet, Downsample(2, stop=0.6), scheduler=scheduler)
    scheduler.set_timesteps(5)
    with recording(unet, patch) as record:
        loop(unet, scheduler, calls=2)
    assert record.turns == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert record.reduced == [True] * 6 + [False] * 4
    assert record.rows[::2] == record.rows[1::2]


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("reduction", [Downsample(2), Downsample(2, stop=0.6)], ids=["whole", "window"])
def test_a_loop_that_is_run_twice_after_one_set_timesteps(reduction, calls):
    unet, scheduler = one_level_unet(), ddim()
    scheduler.set_timesteps(5)
    todome.apply(unet, reduction, scheduler=scheduler)
    assert loop(unet, scheduler, calls).equal(loop(unet, scheduler, calls))


def test_removing_forgets_the_given_scheduler():
    unet, scheduler = one_level_unet(), ddim()
    todome.apply(unet, Downsample(2), scheduler=scheduler)
    assert not untapped(scheduler)
    todome.remove(unet)
    assert untapped(scheduler)


def test_a_bare_model_has_a_new_turn_for_every_call():
    unet = one_level_unet()
    patch = todome.apply(unet, Downsample(2))
    with recording(unet, patch) as record:
        for _ in range(8):
            unet(torch.zeros(1, 4, SIDE, SIDE), 5, torch.zeros(1, 3, 8))
    assert record.turns == list(range(8))


def call_ldm(host: Any) -> None:
    host.model.diffusion_model(torch.zeros(2, 4, SIDE, SIDE), torch.tensor([5, 5]), torch.zeros(2, 3, 8))


def call_diffusers(unet: Any) -> None:
    unet(torch.zeros(1, 4, SIDE, SIDE), 5, torch.zeros(1, 3, 8))


@pytest.mark.parametrize(("make", "call"), [(one_level_unet, call_diffusers), (tiny_ldm, call_ldm)])
def test_the_user_says_where_the_run_is(make, call):
    host = make()
    patch = todome.apply(host, Downsample(2, start=0.2, stop=0.6))
    with recording(patch.models[0], patch) as record:
        for number in range(5):
            patch.at(number, 5)
            call(host)
            call(host)
    assert record.turns == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert record.reduced == [False] * 2 + [True] * 4 + [False] * 4


def test_ldm_without_a_driver_has_a_new_turn_for_every_call():
    host = tiny_ldm()
    patch = todome.apply(host, Downsample(2))
    with recording(patch.models[0], patch) as record:
        for _ in range(4):
            call_ldm(host)
    assert record.turns == [0, 1, 2, 3]


@every_scheduler
def test_pipelines_see_the_signature_of_their_scheduler(name):
    pipeline = tiny_pipeline(SCHEDULERS[name]())
    before = {method: inspect.signature(getattr(pipeline.scheduler, method)) for method in ("step", "set_timesteps")}
    with todome.apply(pipeline, Downsample(2)):
        after = {method: inspect.signature(getattr(pipeline.scheduler, method)) for method in before}
        assert not untapped(pipeline.scheduler)
    assert after == before
    assert untapped(pipeline.scheduler)


@pytest.mark.parametrize("how", ["patch", "remove", "error"])
def test_removing_leaves_the_scheduler_as_it_was(how):
    pipeline = tiny_pipeline()
    before = dict(vars(pipeline.scheduler))
    patch = todome.apply(pipeline, Downsample(2))
    if how == "patch":
        patch.remove()
    elif how == "remove":
        todome.remove(pipeline)
    else:
        with pytest.raises(ZeroDivisionError), patch:
            _ = 1 / 0
    assert vars(pipeline.scheduler) == before


def test_a_replaced_patch_leaves_one_tap():
    pipeline = tiny_pipeline()
    method = pipeline.scheduler.step
    for _ in range(3):
        todome.apply(pipeline, Downsample(2, stop=0.6))
    patch = todome.apply(pipeline, Downsample(2, stop=0.6))
    assert pipeline.scheduler.step.__wrapped__ == method
    with recording(pipeline.unet, patch) as record:
        draw(pipeline)
    assert record.reduced == window(10, 0, 0.6)
    patch.remove()
    assert untapped(pipeline.scheduler)


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


def through_pickle(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


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
    assert untapped(twin.scheduler)
    assert draw(twin).equal(dense)
    assert draw(pipeline).equal(reduced)


@pytest.mark.parametrize("name", ["DDIM", "Euler", "PNDM"])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, through_pickle])
def test_a_copy_of_a_tapped_scheduler_runs_on_its_own(name, duplicate):
    pipeline = tiny_pipeline(SCHEDULERS[name]())
    patch = todome.apply(pipeline, Downsample(2))
    twin = duplicate(pipeline.scheduler)
    twin.set_timesteps(4)
    loop(one_level_unet(), twin)
    assert patch.clock.steps is None
    assert type(twin.config) is type(pipeline.scheduler.config)


def test_a_patch_keeps_no_pipeline_alive():
    pipeline = tiny_pipeline()
    patch = todome.apply(pipeline, Downsample(2))
    ghosts = [weakref.ref(thing) for thing in (pipeline, pipeline.scheduler)]
    unet = pipeline.unet
    del pipeline
    gc.collect()
    assert [ghost() for ghost in ghosts] == [None, None]
    call_diffusers(unet)
    patch.remove()


class Reads(TorchDispatchMode):
    """Counts how often the value of a tensor is read, which on a GPU waits for it."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def reads_of(pipeline: Any, steps: int) -> int:
    with Reads() as reads:
        draw(pipeline, steps=steps)
    return reads.count


@pytest.mark.parametrize("name", ["DDIM", "PNDM", "Euler", "DPM++ 2M", "UniPC"])
@pytest.mark.parametrize("reduction", [Downsample(2, stop=0.6), Merge(stop=0.6)], ids=["Downsample", "Merge"])
def test_no_value_is_read_per_step(name, reduction):
    pipeline = tiny_pipeline(SCHEDULERS[name]())
    dense = [reads_of(pipeline, steps) for steps in (3, 9)]
    todome.apply(pipeline, reduction)
    draw(pipeline, steps=2)  # makes the tables
    patched = [reads_of(pipeline, steps) for steps in (3, 9)]
    assert patched[1] - dense[1] == patched[0] - dense[0] <= 2


def test_the_count_of_reads_sees_a_read():
    with Reads() as reads:
        float(torch.ones(1))
    assert reads.count == 1


class Elsewhere:
    """A scheduler whose timesteps have no values, as good as on a device that must not be waited for."""

    step_index: int | None = None
    timesteps = torch.empty(0)

    def set_timesteps(self, steps: int) -> None:
        self.timesteps, self.step_index = torch.empty(steps, device="meta"), None

    def step(self, output: Any, timestep: Any, sample: Any) -> Any:
        self.step_index = (self.step_index or 0) + 1
        return SimpleNamespace(prev_sample=sample)


def test_timesteps_are_counted_and_not_read():
    unet, scheduler = one_level_unet(), Elsewhere()
    patch = todome.apply(unet, Downsample(2, stop=0.6), scheduler=scheduler)
    scheduler.set_timesteps(5)
    with recording(unet, patch) as record:
        for timestep in scheduler.timesteps:
            call_diffusers(unet)
            scheduler.step(None, timestep, None)
    assert record.turns == list(range(5))
    assert record.reduced == window(5, 0, 0.6)
