"""Watched methods of a scheduler: seen by nobody, and gone without a trace."""

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
from diffusers import DDIMScheduler, EulerDiscreteScheduler, HeunDiscreteScheduler, PNDMScheduler
from torch import Tensor
from zoo import ddim

from todome import Downsample
from todome.steps.clock import Clock
from todome.steps.scheduler import WatchedMethod, follow, possible_indices, unfollow, watch_of

SAMPLE = torch.zeros(1, 4, 2, 2)


def step(scheduler: Any, timestep: Tensor) -> None:
    scheduler.step(SAMPLE, timestep, SAMPLE)


def clock_of() -> Clock:
    return Clock(Downsample(2))


def position(scheduler: Any) -> tuple[int, int | None]:
    watch = watch_of(scheduler)
    assert watch is not None
    return watch.run.step, watch.run.steps


@pytest.mark.parametrize("kind", [DDIMScheduler, EulerDiscreteScheduler, HeunDiscreteScheduler])
@pytest.mark.parametrize("begin", range(5))
def test_indices_of_real_schedulers(kind, begin):
    scheduler = kind()
    scheduler.set_timesteps(6)
    if hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(begin)
    timestep = scheduler.timesteps[begin]
    step(scheduler, timestep)
    assert possible_indices(scheduler, (SAMPLE, timestep, SAMPLE), {}) == {begin}


def test_indices_by_keyword():
    scheduler = ddim()
    scheduler.set_timesteps(10)
    assert possible_indices(scheduler, (), {"model_output": SAMPLE, "timestep": scheduler.timesteps[3]}) == {3}


def test_a_followed_scheduler_tells_all_clocks():
    scheduler, clocks = ddim(), [clock_of(), clock_of()]
    for clock in clocks:
        clock.follow(scheduler, joins=False)
    scheduler.set_timesteps(3)
    step(scheduler, scheduler.timesteps[0])
    assert [clock.current_call().phase_index for clock in clocks] == [1, 1]
    unfollow(scheduler, clocks[0])
    step(scheduler, scheduler.timesteps[1])
    assert position(scheduler) == (2, 3)
    assert clocks[1].current_call().phase_index == 2


@pytest.mark.parametrize("kind", [DDIMScheduler, EulerDiscreteScheduler, PNDMScheduler])
def test_signature_name_and_docstring_stay(kind):
    scheduler: Any = kind()
    before = {name: getattr(scheduler, name) for name in ("step", "set_timesteps")}
    follow(scheduler, clock_of())
    for name, method in before.items():
        watched: Any = getattr(scheduler, name)
        assert inspect.signature(watched) == inspect.signature(method)
        assert (watched.__name__, watched.__doc__) == (method.__name__, method.__doc__)
        assert isinstance(watched, WatchedMethod)


def test_arguments_and_results_are_handed_through():
    scheduler: Any = ddim()
    bare: Any = ddim()
    follow(scheduler, clock_of())
    for one in (scheduler, bare):
        one.set_timesteps(num_inference_steps=4, device="cpu")
    call = {"model_output": SAMPLE + 1, "timestep": int(bare.timesteps[0]), "sample": SAMPLE + 2}
    assert scheduler.step(**call).prev_sample.equal(bare.step(**call).prev_sample)
    assert scheduler.step(**call, return_dict=False)[0].equal(bare.step(**call).prev_sample)


def test_a_failing_step_does_not_count():
    scheduler = ddim()
    follow(scheduler, clock_of())
    scheduler.set_timesteps(4)
    with pytest.raises(TypeError, match="missing"):
        vars(scheduler)["step"]()
    assert position(scheduler) == (0, 4)


def test_unfollowing_leaves_the_scheduler_as_it_was():
    scheduler, clock = ddim(), clock_of()
    before = dict(vars(scheduler))
    follow(scheduler, clock)
    assert {"step", "set_timesteps"} <= vars(scheduler).keys()
    unfollow(scheduler, clock)
    assert vars(scheduler) == before


def test_unfollowing_restores_what_the_user_had_put_there():
    scheduler, clock, calls = ddim(), clock_of(), []
    method = scheduler.step

    def counted(*args, **kwargs):
        calls.append(args)
        return method(*args, **kwargs)

    scheduler.step = counted
    follow(scheduler, clock)
    scheduler.set_timesteps(2)
    step(scheduler, scheduler.timesteps[0])
    assert (len(calls), position(scheduler)) == (1, (1, 2))
    unfollow(scheduler, clock)
    assert vars(scheduler)["step"] is counted


def test_unfollowing_leaves_what_the_user_put_on_top():
    scheduler, clock = ddim(), clock_of()
    follow(scheduler, clock)
    watched = scheduler.step

    def on_top(*args, **kwargs):
        return watched(*args, **kwargs)

    scheduler.step = on_top
    unfollow(scheduler, clock)
    assert vars(scheduler)["step"] is on_top
    scheduler.set_timesteps(2)
    step(scheduler, scheduler.timesteps[0])


def test_unfollowing_a_stranger_is_fine():
    scheduler = ddim()
    before = dict(vars(scheduler))
    unfollow(scheduler, clock_of())
    assert vars(scheduler) == before


def through_pickle(scheduler: Any) -> Any:
    return pickle.loads(pickle.dumps(scheduler))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, through_pickle])
def test_a_copy_of_a_followed_scheduler_has_a_run_of_its_own(duplicate):
    scheduler, clock = ddim(), clock_of()
    clock.follow(scheduler, joins=False)
    scheduler.set_timesteps(4)
    step(scheduler, scheduler.timesteps[0])
    twin = duplicate(scheduler)
    twin.set_timesteps(3)
    step(twin, twin.timesteps[0])
    step(twin, twin.timesteps[1])
    assert (twin.num_inference_steps, scheduler.num_inference_steps) == (3, 4)
    assert position(scheduler) == (1, 4)


def test_a_copy_goes_on_from_where_the_first_one_was():
    scheduler, clock = ddim(), clock_of()
    clock.follow(scheduler, joins=False)
    scheduler.set_timesteps(4)
    step(scheduler, scheduler.timesteps[0])
    twin = copy.deepcopy(scheduler)
    step(twin, twin.timesteps[1])
    assert (position(twin), position(scheduler)) == ((2, 4), (1, 4))
    assert clock.current_call().phase_index == 2, "the copy drives the clock"


def test_a_copy_carries_no_trace_after_the_removal():
    scheduler, clock = ddim(), clock_of()
    clock.follow(scheduler, joins=False)
    twins = [copy.deepcopy(scheduler)]
    twins.append(copy.deepcopy(twins[0]))
    clock.leave(None)
    for one in (scheduler, *twins):
        assert not {"step", "set_timesteps"} & vars(one).keys()
        one.set_timesteps(3)
        assert one.num_inference_steps == 3


def test_a_pickled_scheduler_loses_its_trace_when_it_is_used():
    scheduler, clock = ddim(), clock_of()
    clock.follow(scheduler, joins=False)
    twin = through_pickle(scheduler)
    twin.set_timesteps(3)
    assert not {"step", "set_timesteps"} & vars(twin).keys()


def test_a_state_that_is_saved_and_restored_takes_the_run_along():
    """What pipelines do that denoise many views of one picture: panorama, tiled upscaling."""
    scheduler, clock = ddim(), clock_of()
    clock.follow(scheduler, joins=False)
    scheduler.set_timesteps(4)
    views = [copy.deepcopy(scheduler.__dict__) for _ in range(3)]
    phases = []
    for timestep in scheduler.timesteps:
        for number, state in enumerate(views):
            scheduler.__dict__.update(state)
            phases.append(clock.next_call(timestep).phase_index)
            step(scheduler, timestep)
            views[number] = copy.deepcopy(scheduler.__dict__)
    assert phases == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    clock.leave(None)
    assert not {"step", "set_timesteps"} & vars(scheduler).keys()


def test_a_state_from_before_the_removal_leaves_no_trace_either():
    scheduler, clock = ddim(), clock_of()
    clock.follow(scheduler, joins=False)
    state = copy.deepcopy(scheduler.__dict__)
    clock.leave(None)
    scheduler.__dict__.update(state)
    scheduler.set_timesteps(3)
    assert scheduler.num_inference_steps == 3
    assert not {"step", "set_timesteps"} & vars(scheduler).keys()
