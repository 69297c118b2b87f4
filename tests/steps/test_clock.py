"""The clock and its taps, by themselves: windows, turns, who drives, and leaving schedulers as they were."""

import copy
import gc
import inspect
import pickle
import weakref
from typing import Any

import pytest
import torch
from diffusers import DDIMScheduler, EulerDiscreteScheduler, HeunDiscreteScheduler, PNDMScheduler
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from zoo import ddim

from todome import Downsample, Merge
from todome.steps.clock import Clock
from todome.steps.scheduler import Tap, forget, listen, positions

CPU = torch.device("cpu")
SAMPLE = torch.zeros(1, 4, 2, 2)


def clock_of(**settings) -> Clock:
    return Clock(Downsample(2, **settings))


def turns_of(clock: Clock) -> tuple[int, int]:
    """The turn as eager code sees it, and as graphs do."""
    return clock.turn, int(clock.turn_in_graphs)


def step(scheduler: Any, timestep: Tensor) -> None:
    scheduler.step(SAMPLE, timestep, SAMPLE)


@settings(deadline=None, max_examples=200)
@given(st.tuples(st.integers(0, 100), st.integers(0, 100)), st.integers(1, 120))
def test_the_window_is_open_from_start_up_to_stop(percents, steps):
    start, stop = sorted(percents)
    clock = clock_of(start=start / 100, stop=stop / 100)
    for number in range(steps):
        clock.at(number, steps)
        inside = start * steps <= 100 * number < stop * steps  # in whole numbers, hence exact
        assert clock.active == (inside or (start, stop) == (0, 100))


def test_a_sum_of_tenths_opens_where_it_should():
    clock = clock_of(start=0.1 + 0.2, stop=1.0)
    assert [clock.at(number, 10) or clock.active for number in range(10)] == [False] * 3 + [True] * 7


def test_an_empty_window_never_opens():
    clock = clock_of(start=0.5, stop=0.5)
    assert not any(clock.at(number, 10) or clock.active for number in range(10))


def test_turns_are_steps_when_dithering_and_draws_when_random():
    dithering, random = clock_of(), clock_of(phase="random")
    for number in range(5):
        dithering.at(number, 5)
        random.at(number, 5)
        assert turns_of(dithering) == (number, number)
        assert turns_of(random) == (Downsample(2, phase="random").phase_index(number),) * 2


def test_merging_corners_has_one_turn_only():
    clock = Clock(Merge(random=False))
    clock.at(3, 5)
    assert turns_of(clock) == (0, 0)


def driven(steps: int, **settings) -> tuple[Clock, Any]:
    """A clock, and the scheduler that drives it through so many steps."""
    clock, scheduler = clock_of(**settings), ddim()
    clock.listen(scheduler)
    scheduler.set_timesteps(steps)
    return clock, scheduler


def test_the_turn_that_graphs_see_is_overwritten_in_place():
    clock, scheduler = driven(steps=3)
    seen = clock.turn_in_graphs
    step(scheduler, scheduler.timesteps[0])
    clock.called(CPU)
    assert seen.tolist() == [1]
    clock.at(2, 3)
    assert seen.tolist() == [2]
    assert clock.turn_in_graphs is seen


def test_without_a_driver_every_call_is_a_step():
    clock = clock_of()
    turns = [clock.called(CPU) or clock.turn for _ in range(4)]
    assert turns == [0, 1, 2, 3]


def test_a_driver_is_followed_whatever_the_number_of_calls():
    clock, scheduler = driven(steps=2)
    clock.called(CPU)
    clock.called(CPU)
    assert clock.turn == 0
    step(scheduler, scheduler.timesteps[0])
    clock.called(CPU)
    assert clock.turn == 1


def test_a_run_begins_anew():
    clock, scheduler = driven(steps=4, stop=0.5)
    for _ in range(2):
        scheduler.set_timesteps(4)
        seen = []
        for timestep in scheduler.timesteps:
            clock.called(CPU)
            seen.append((clock.turn, clock.active))
            step(scheduler, timestep)
        assert seen == [(0, True), (1, True), (2, False), (3, False)]


def test_steps_that_never_run_are_not_counted():
    clock, scheduler = driven(steps=8, stop=0.5)
    step(scheduler, scheduler.timesteps[4])
    assert (clock.step, clock.steps) == (1, 4)
    assert clock.active
    step(scheduler, scheduler.timesteps[5])
    assert not clock.active


@pytest.mark.parametrize("kind", [DDIMScheduler, EulerDiscreteScheduler, HeunDiscreteScheduler])
@pytest.mark.parametrize("begin", range(5))
def test_positions_of_real_schedulers(kind, begin):
    scheduler = kind()
    scheduler.set_timesteps(6)
    if hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(begin)
    timestep = scheduler.timesteps[begin]
    step(scheduler, timestep)
    assert positions(scheduler, (SAMPLE, timestep, SAMPLE), {}) == {begin}


def test_positions_by_keyword():
    scheduler = ddim()
    scheduler.set_timesteps(10)
    assert positions(scheduler, (), {"model_output": SAMPLE, "timestep": scheduler.timesteps[3]}) == {3}


def test_a_tapped_scheduler_drives_its_clocks():
    scheduler, clocks = ddim(), [clock_of(), clock_of(stop=0.5)]
    for clock in clocks:
        listen(scheduler, clock)
    scheduler.set_timesteps(3)
    assert [(clock.step, clock.steps) for clock in clocks] == [(0, 3)] * 2
    step(scheduler, scheduler.timesteps[0])
    assert [(clock.step, clock.steps) for clock in clocks] == [(1, 3)] * 2
    forget(scheduler, clocks[0])
    step(scheduler, scheduler.timesteps[1])
    assert [clock.step for clock in clocks] == [1, 2]


@pytest.mark.parametrize("kind", [DDIMScheduler, EulerDiscreteScheduler, PNDMScheduler])
def test_taps_keep_signature_name_and_docstring(kind):
    scheduler: Any = kind()
    before = {name: getattr(scheduler, name) for name in ("step", "set_timesteps")}
    listen(scheduler, clock_of())
    for name, method in before.items():
        tap: Any = getattr(scheduler, name)
        assert inspect.signature(tap) == inspect.signature(method)
        assert (tap.__name__, tap.__doc__) == (method.__name__, method.__doc__)
        assert isinstance(tap, Tap)


def test_taps_hand_through_arguments_and_results():
    scheduler: Any = ddim()
    bare: Any = ddim()
    listen(scheduler, clock_of())
    for one in (scheduler, bare):
        one.set_timesteps(num_inference_steps=4, device="cpu")
    call = {"model_output": SAMPLE + 1, "timestep": int(bare.timesteps[0]), "sample": SAMPLE + 2}
    assert scheduler.step(**call).prev_sample.equal(bare.step(**call).prev_sample)
    assert scheduler.step(**call, return_dict=False)[0].equal(bare.step(**call).prev_sample)


def test_a_failing_step_does_not_count():
    scheduler, clock = ddim(), clock_of()
    listen(scheduler, clock)
    scheduler.set_timesteps(4)
    with pytest.raises(TypeError, match="missing"):
        vars(scheduler)["step"]()
    assert clock.step == 0


def test_forgetting_leaves_the_scheduler_as_it_was():
    scheduler, clock = ddim(), clock_of()
    before = dict(vars(scheduler))
    listen(scheduler, clock)
    assert {"step", "set_timesteps"} <= vars(scheduler).keys()
    forget(scheduler, clock)
    assert vars(scheduler) == before


def test_forgetting_restores_what_the_user_had_put_there():
    scheduler, clock = ddim(), clock_of()
    calls = []
    method = scheduler.step

    def counted(*args, **kwargs):
        calls.append(args)
        return method(*args, **kwargs)

    scheduler.step = counted
    listen(scheduler, clock)
    scheduler.set_timesteps(2)
    step(scheduler, scheduler.timesteps[0])
    assert (len(calls), clock.step) == (1, 1)
    forget(scheduler, clock)
    assert vars(scheduler)["step"] is counted


def test_forgetting_leaves_what_the_user_put_on_top():
    scheduler, clock = ddim(), clock_of()
    listen(scheduler, clock)
    tap = scheduler.step

    def on_top(*args, **kwargs):
        return tap(*args, **kwargs)

    scheduler.step = on_top
    forget(scheduler, clock)
    assert vars(scheduler)["step"] is on_top
    scheduler.set_timesteps(2)
    step(scheduler, scheduler.timesteps[0])


def test_forgetting_a_stranger_is_fine():
    scheduler = ddim()
    before = dict(vars(scheduler))
    forget(scheduler, clock_of())
    assert vars(scheduler) == before


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
def test_a_copy_of_a_tapped_scheduler_is_on_its_own(duplicate):
    scheduler, clock = ddim(), clock_of()
    listen(scheduler, clock)
    scheduler.set_timesteps(4)
    twin = duplicate(scheduler)
    twin.set_timesteps(3)
    step(twin, twin.timesteps[0])
    assert (twin.num_inference_steps, scheduler.num_inference_steps) == (3, 4)
    assert (clock.step, clock.steps) == (0, 4)


def test_a_copied_clock_follows_nobody():
    scheduler, clock = ddim(), clock_of()
    clock.listen(scheduler)
    twin = pickle.loads(pickle.dumps(clock))
    assert (twin.models, twin.pipelines, twin.schedulers) == ([], [], [])
    assert (twin.reduction, turns_of(twin)) == (clock.reduction, (0, 0))
    assert clock.schedulers[0]() is scheduler


def test_a_clock_listens_to_a_scheduler_once():
    scheduler, clock = ddim(), clock_of()
    clock.listen(scheduler)
    clock.listen(scheduler)
    scheduler.set_timesteps(5)
    step(scheduler, scheduler.timesteps[0])
    assert clock.step == 1


def test_a_clock_joins_a_run_that_is_set_up():
    scheduler, clock = ddim(), clock_of()
    scheduler.set_timesteps(5)
    clock.listen(scheduler)
    assert (clock.step, clock.steps) == (0, 5)


def test_a_clock_keeps_no_scheduler_alive():
    scheduler, clock = ddim(), clock_of()
    clock.listen(scheduler)
    ghost = weakref.ref(scheduler)
    del scheduler
    gc.collect()
    assert ghost() is None
    clock.called(CPU)
