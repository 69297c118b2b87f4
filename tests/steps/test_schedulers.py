"""Real pipelines with real schedulers: where the reduction is on, and whose turn it is."""

from itertools import pairwise
from typing import Any

import pytest
from sampling import CALLS, KNOWN_WARNINGS, SCHEDULERS, every_scheduler, run, window
from zoo import SIDE, draw, recording, tiny_pipeline

import todome
from todome import Downsample, Merge

pytestmark = KNOWN_WARNINGS

WINDOWS = [(0.0, 0.6), (0.3, 1.0), (0.0, 0.55)]
CASES = [(name, 0.25, 0.75) for name in SCHEDULERS]
CASES += [pytest.param(name, *part, marks=pytest.mark.thorough) for name in ("DDIM", *CALLS) for part in WINDOWS]


@pytest.mark.parametrize(("name", "start", "stop"), CASES)
def test_the_window_is_a_share_of_the_executed_calls(name, start, stop):
    record = run(tiny_pipeline(SCHEDULERS[name]()), Downsample(2, start=start, stop=stop))
    assert record.reduced == window(CALLS.get(name, 10), start, stop)


@every_scheduler
def test_every_executed_call_is_counted_and_the_same_seed_gives_the_same_picture_twice(name):
    pipeline = tiny_pipeline(SCHEDULERS[name]())
    dense = draw(pipeline)
    patch = todome.apply(pipeline, Downsample(2, seed=3))
    with recording(pipeline.unet, patch) as record:
        once, again = draw(pipeline), draw(pipeline)
    assert once.equal(again)
    assert not once.equal(dense)
    assert record.phases == 2 * list(range(CALLS.get(name, 10)))
    assert all(record.reduced)
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
        assert record.phases == list(range(steps))


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


def test_timesteps_of_a_users_own():
    record = run(tiny_pipeline(SCHEDULERS["Euler"]()), Downsample(2, stop=0.5), timesteps=[900, 700, 300, 100])
    assert record.reduced == [True, True, False, False]
