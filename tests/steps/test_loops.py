"""Loops of a user's own: bare models with a scheduler, with patch.at, and with neither."""

from typing import Any

import pytest
import torch
from sampling import CALLS, KNOWN_WARNINGS, SCHEDULERS, call_diffusers, loop, unwatched, window
from zoo import SIDE, TEXT, WIDTH, ddim, latent_diffusion, one_level_unet, recording, text

import todome
from todome import Downsample, Merge

pytestmark = KNOWN_WARNINGS


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
    assert record.phases == list(range(CALLS.get(name, 10)))
    assert record.reduced == window(CALLS.get(name, 10), 0, 0.6)
    patch.remove()
    assert unwatched(scheduler)


def test_both_calls_of_a_step_have_the_same_phase():
    unet, scheduler = one_level_unet(), ddim()
    patch = todome.apply(unet, Downsample(2, stop=0.6), scheduler=scheduler)
    scheduler.set_timesteps(5)
    with recording(unet, patch) as record:
        loop(unet, scheduler, calls=2)
    assert record.phases == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert record.reduced == [True] * 6 + [False] * 4
    assert record.rows[::2] == record.rows[1::2]


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("reduction", [Downsample(2), Downsample(2, stop=0.6)], ids=["whole", "window"])
def test_a_loop_that_is_run_twice_after_one_set_timesteps(reduction, calls):
    unet, scheduler = one_level_unet(), ddim()
    scheduler.set_timesteps(5)
    todome.apply(unet, reduction, scheduler=scheduler)
    assert loop(unet, scheduler, calls).equal(loop(unet, scheduler, calls))


def free_loop(unet: Any, calls: int, steps: int = 5) -> torch.Tensor:
    """As k-diffusion does it: nothing of the run is known to anybody but the loop."""
    sample = torch.linspace(-1, 1, 4 * SIDE * SIDE).view(1, 4, SIDE, SIDE)
    for timestep in torch.linspace(999, 1, steps):
        for call in range(calls):
            sample = sample - 0.1 * unet(sample, timestep, text(1) * (1 - call)).sample
    return sample


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("reduction", [Downsample(2), Merge()], ids=repr)
def test_a_loop_that_nobody_follows_gives_the_same_picture_every_time(reduction, calls):
    unet = one_level_unet()
    with torch.no_grad():
        todome.apply(unet, reduction)
        pictures = [free_loop(unet, calls) for _ in range(3)]
        free_loop(unet, calls, steps=7)
        pictures.append(free_loop(unet, calls))
    assert all(picture.equal(pictures[0]) for picture in pictures)


def test_both_halves_of_a_guided_step_see_every_key():
    unet = one_level_unet()
    patch = todome.apply(unet, Downsample(2))
    with torch.no_grad(), recording(unet, patch) as record:
        free_loop(unet, calls=2, steps=4)
    for half in (record.rows[::2], record.rows[1::2]):
        assert sorted(row for rows in half for row in rows) == list(range(SIDE * SIDE))


def call_ldm(host: Any, timestep: int = 5) -> None:
    timesteps = torch.tensor([timestep, timestep])
    host.model.diffusion_model(torch.zeros(2, 4, SIDE, SIDE), timesteps, torch.zeros(2, TEXT, WIDTH))


over_libraries = pytest.mark.parametrize(
    ("make", "call"), [(one_level_unet, call_diffusers), (latent_diffusion, call_ldm)]
)


@over_libraries
def test_a_model_that_nobody_drives_has_a_new_phase_for_every_timestep(make, call):
    host = make()
    patch = todome.apply(host, Downsample(2))
    with recording(patch.models[0], patch) as record:
        for timestep in [9, 9, 7, 7, 5, 5, 9, 8]:
            call(host, timestep)
    assert record.phases == [0, 0, 1, 1, 2, 2, 0, 1]


@over_libraries
def test_the_user_says_where_the_run_is(make, call):
    host = make()
    patch = todome.apply(host, Downsample(2, start=0.2, stop=0.6))
    with recording(patch.models[0], patch) as record:
        for number in range(5):
            patch.at(number, 5)
            call(host)
            call(host)
    assert record.phases == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert record.reduced == [False] * 2 + [True] * 4 + [False] * 4


def test_what_the_user_says_counts_more_than_the_scheduler():
    """A host may drive the patch and step a scheduler that is followed, of whose run it executes a part."""
    unet, scheduler = one_level_unet(), ddim()
    patch = todome.apply(unet, Downsample(2, stop=0.5), scheduler=scheduler)
    scheduler.set_timesteps(10)
    with recording(unet, patch) as record:
        for number in range(3):
            patch.at(number, 4)
            call_diffusers(unet)
            scheduler.step(torch.zeros(1, 4, SIDE, SIDE), 5, torch.zeros(1, 4, SIDE, SIDE))
            call_diffusers(unet)
    assert record.phases == [0, 1, 1, 2, 2, 3]
    assert record.reduced == [True, True, True, False, False, False]
