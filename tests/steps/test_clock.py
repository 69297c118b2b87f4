"""The clock by itself: windows, phases, and steps that are told from timesteps."""

import pickle
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import one_level_unet, token_state

import todome
from todome import Downsample, Merge
from todome.hooks.keys import KeptKeys
from todome.hooks.layers import layer_table
from todome.hooks.patched import PatchedModel, Shared
from todome.hooks.state import TokenCall
from todome.hooks.tokens import TokenState
from todome.tokens.tables import TableCache


def state_of(lever: Any) -> TokenState:
    """What the hooks of a lever share on a model with one layer."""
    parts = lever.parts([SimpleNamespace(level=1)])
    return TokenState(lever, parts, TableCache(partial(layer_table, lever, KeptKeys)), PatchedModel(Shared()))


def clock_of(**settings: Any) -> TokenState:
    return state_of(Downsample(2, **settings))


def next_call(clock: TokenState, timestep: Any) -> TokenCall:
    return clock.call_at(clock.patched.shared.runs.of(timestep))


def active_at(clock: TokenState, number: int, steps: int) -> bool:
    clock.patched.shared.runs.at(number, steps)
    return clock.current_call().part is not None


@settings(deadline=None)
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


def phases_of(clock: TokenState, steps: int) -> list[int]:
    found = []
    for number in range(steps):
        clock.patched.shared.runs.at(number, steps)
        found.append(next_call(clock, None).phase_index)
    return found


def test_phases_are_steps_when_dithering_and_draws_when_random():
    random = Downsample(2, phase="random")
    assert phases_of(clock_of(), 5) == [0, 1, 2, 3, 4]
    assert phases_of(state_of(random), 5) == [random.phase_index(number) for number in range(5)]
    assert phases_of(state_of(Merge(random=False)), 5) == [0] * 5


def steps_of(timesteps: list[float]) -> list[int]:
    clock = clock_of()
    return [next_call(clock, torch.tensor(timestep)).phase_index for timestep in timesteps]


def test_without_a_driver_timesteps_tell_steps_apart():
    assert steps_of([900, 600, 300]) == [0, 1, 2]
    assert steps_of([900, 900, 600, 600, 300, 300]) == [0, 0, 1, 1, 2, 2], "guidance as two calls"
    assert steps_of([900, 600, 900, 600, 300]) == [0, 1, 0, 1, 2], "a timestep that goes back up begins a run"
    assert steps_of([5, 5, 5]) == [0, 0, 0], "runs of one step"


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 999), min_size=2, max_size=8, unique=True), min_size=1, max_size=4))
def test_every_run_without_a_driver_has_the_same_steps(runs):
    """Whatever was drawn before: with one seed, the same run gives the same picture."""
    clock, last = clock_of(), -1
    for run in (sorted(run, reverse=True) for run in runs):
        if run[0] <= last:
            continue  # cannot be told from a run that goes on
        assert [next_call(clock, timestep).phase_index for timestep in run] == list(range(len(run)))
        last = run[-1]


@pytest.mark.parametrize(
    "timestep", [7, 7.0, torch.tensor(7), torch.tensor([7.0]), torch.full((3,), 7)], ids=lambda t: str(t)
)
def test_timesteps_of_every_form(timestep):
    clock = clock_of()
    next_call(clock, 9)
    assert next_call(clock, timestep).phase_index == 1


def test_a_timestep_that_cannot_be_read_stays_in_its_step():
    clock = clock_of()
    next_call(clock, 9)
    next_call(clock, 7)
    assert next_call(clock, None).phase_index == 1
    assert next_call(clock, torch.zeros(2, device="meta")).phase_index == 1


def test_a_copied_clock_is_where_the_first_one_was():
    clock = clock_of(stop=0.5)
    clock.patched.shared.runs.at(6, 10)
    twin = pickle.loads(pickle.dumps(clock))
    clock.patched.shared.runs.at(0, 10)
    assert next_call(twin, None) == (None, 6)


def test_what_graphs_read_is_overwritten_in_place():
    patch = todome.apply(one_level_unet(), Downsample(2))
    inputs = token_state(patch).graph
    seen = inputs.phase
    for number in (1, 2):
        patch.at(number, 3)
        assert seen.tolist() == [number]
    assert inputs.phase is seen
    assert inputs.driven
