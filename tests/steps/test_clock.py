"""The clock by itself: windows, phases, and who drives it."""

import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from zoo import ddim

from todome import Downsample, Merge
from todome.hooks.state import GraphInputs
from todome.steps.clock import Clock
from todome.steps.run import Run, TimestepRun

SAMPLE = torch.zeros(1, 4, 2, 2)


def clock_of(**settings: Any) -> Clock:
    return Clock(Downsample(2, **settings))


def step(scheduler: Any, timestep: Tensor) -> None:
    scheduler.step(SAMPLE, timestep, SAMPLE)


def active_at(clock: Clock, number: int, steps: int) -> bool:
    clock.at(number, steps)
    return clock.current_call().active


@settings(deadline=None, max_examples=200)
@given(st.tuples(st.integers(0, 100), st.integers(0, 100)), st.integers(1, 120))
def test_the_window_is_open_from_start_up_to_stop(percents, steps):
    start, stop = sorted(percents)
    clock = clock_of(start=start / 100, stop=stop / 100)
    for number in range(steps):
        inside = start * steps <= 100 * number < stop * steps  # in whole numbers, hence exact
        assert active_at(clock, number, steps) == (inside or (start, stop) == (0, 100))


def test_a_sum_of_tenths_opens_where_it_should():
    clock = clock_of(start=0.1 + 0.2, stop=1.0)
    assert [active_at(clock, number, 10) for number in range(10)] == [False] * 3 + [True] * 7


def test_an_empty_window_never_opens():
    clock = clock_of(start=0.5, stop=0.5)
    assert not any(active_at(clock, number, 10) for number in range(10))


def phases_of(clock: Clock, steps: int) -> list[int]:
    found = []
    for number in range(steps):
        clock.at(number, steps)
        found.append(clock.next_call(None).phase_index)
    return found


def test_phases_are_steps_when_dithering_and_draws_when_random():
    random = Downsample(2, phase="random")
    assert phases_of(clock_of(), 5) == [0, 1, 2, 3, 4]
    assert phases_of(Clock(random), 5) == [random.phase_index(number) for number in range(5)]
    assert phases_of(Clock(Merge(random=False)), 5) == [0] * 5


def driven(steps: int, **settings: Any) -> tuple[Clock, Any]:
    """A clock, and the scheduler that drives it through so many steps."""
    clock, scheduler = clock_of(**settings), ddim()
    clock.follow(scheduler, joins=True)
    scheduler.set_timesteps(steps)
    return clock, scheduler


def test_a_scheduler_is_followed_whatever_the_number_of_calls():
    clock, scheduler = driven(steps=2)
    assert [clock.next_call(9).phase_index, clock.next_call(5).phase_index] == [0, 0]
    step(scheduler, scheduler.timesteps[0])
    assert clock.next_call(9).phase_index == 1


def test_a_run_begins_anew():
    clock, scheduler = driven(steps=4, stop=0.5)
    for _ in range(2):
        scheduler.set_timesteps(4)
        seen = []
        for timestep in scheduler.timesteps:
            seen.append(clock.next_call(timestep)[:2])
            step(scheduler, timestep)
        assert seen == [(True, 0), (True, 1), (False, 2), (False, 3)]


def test_steps_that_never_run_are_not_counted():
    clock, scheduler = driven(steps=8, stop=0.5)
    step(scheduler, scheduler.timesteps[4])
    assert clock.run is not None
    assert (clock.run.step, clock.run.steps) == (1, 4)
    assert clock.current_call().active
    step(scheduler, scheduler.timesteps[5])
    assert not clock.current_call().active


def steps_of(timesteps: list[float]) -> list[int]:
    clock = clock_of()
    return [clock.next_call(torch.tensor(timestep)).phase_index for timestep in timesteps]


def test_without_a_driver_timesteps_tell_steps_apart():
    assert steps_of([900, 600, 300]) == [0, 1, 2]
    assert steps_of([900, 900, 600, 600, 300, 300]) == [0, 0, 1, 1, 2, 2], "guidance as two calls"
    assert steps_of([900, 600, 900, 600, 300]) == [0, 1, 0, 1, 2], "a timestep that goes back up begins a run"
    assert steps_of([5, 5, 5]) == [0, 0, 0], "runs of one step"


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 999), min_size=2, max_size=8, unique=True), min_size=1, max_size=4))
def test_every_run_without_a_driver_has_the_same_steps(runs):
    """Whatever was drawn before: with one seed, the same run gives the same picture."""
    found = TimestepRun()
    for run in (sorted(run, reverse=True) for run in runs):
        if found.timestep is not None and run[0] <= found.timestep:
            continue  # cannot be told from a run that goes on
        assert [found.advance(timestep) for timestep in run] == list(range(len(run)))


@pytest.mark.parametrize(
    "timestep", [7, 7.0, torch.tensor(7), torch.tensor([7.0]), torch.full((3,), 7)], ids=lambda t: str(t)
)
def test_timesteps_of_every_form(timestep):
    clock = clock_of()
    clock.next_call(9)
    assert clock.next_call(timestep).phase_index == 1


def test_a_timestep_that_cannot_be_read_stays_in_its_step():
    clock = clock_of()
    clock.next_call(9)
    clock.next_call(7)
    assert clock.next_call(None).phase_index == 1
    assert clock.next_call(torch.zeros(2, device="meta")).phase_index == 1


def test_what_graphs_read_is_overwritten_in_place():
    clock, scheduler = driven(steps=3)
    inputs = GraphInputs(torch.nn.Module())
    clock.graph_inputs.add(inputs)
    seen = inputs.phase
    step(scheduler, scheduler.timesteps[0])
    assert seen.tolist() == [1]
    clock.at(2, 3)
    assert seen.tolist() == [2]
    assert inputs.phase is seen
    assert inputs.driven


def test_a_copied_clock_follows_nobody():
    clock, scheduler = driven(steps=4)
    twin = pickle.loads(pickle.dumps(clock))
    assert not twin.attached
    assert (twin.models, twin.pipelines, twin.schedulers) == ({}, {}, {})
    assert twin.reduction == clock.reduction
    assert id(scheduler) in clock.schedulers


def test_a_copied_clock_is_where_the_first_one_was():
    clock = clock_of(stop=0.5)
    clock.at(6, 10)
    twin = pickle.loads(pickle.dumps(clock))
    clock.at(0, 10)
    assert twin.next_call(None)[:2] == (False, 6)


def test_a_clock_follows_a_scheduler_once():
    scheduler, clock = ddim(), clock_of()
    clock.follow(scheduler, joins=True)
    clock.follow(scheduler, joins=True)
    scheduler.set_timesteps(5)
    step(scheduler, scheduler.timesteps[0])
    assert clock.run == Run(1, 5, 5, {0})


def test_a_clock_joins_a_run_that_is_set_up():
    scheduler, clock = ddim(), clock_of(stop=0.5)
    scheduler.set_timesteps(5)
    clock.follow(scheduler, joins=True)
    assert clock.next_call(None)[:2] == (True, 0)


def test_a_clock_keeps_no_scheduler_alive():
    clock, scheduler = driven(steps=3)
    ghost = weakref.ref(scheduler)
    del scheduler
    gc.collect()
    assert ghost() is None
    assert clock.schedulers == {}
    assert clock.next_call(5).phase_index == 0


def test_nothing_grows_with_schedulers_and_pipelines():
    clock = clock_of()
    for _ in range(50):
        clock.follow(ddim(), joins=False)
    gc.collect()
    assert clock.schedulers == {}
