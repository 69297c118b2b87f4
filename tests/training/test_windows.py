"""When it is on in training: a share of the training, or, where a batch has one timestep, of the noise."""

from typing import Any

import pytest
import torch
from learners import gradients, loss_of, unet_batch
from zoo import ddim, one_level_unet, recording, run, unet_inputs

import todome
from todome import Downsample


def reduced_steps(unet: Any, patch: todome.Patch, steps: list[tuple[int, int]]) -> list[bool]:
    with recording(unet) as record:
        for step in steps:
            patch.at(*step)
            gradients(unet, [loss_of(unet(**unet_batch(grid=(4, 4))))])
    return record.reduced


def trainable() -> Any:
    return one_level_unet().requires_grad_()


def test_a_share_of_the_training_in_which_a_resumed_one_makes_the_same_choices():
    whole, resumed = trainable(), trainable()
    reduction = Downsample(factor=2, phase="random", start=0.25, stop=0.75)
    steps = [(step, 8) for step in range(8)]
    with recording(whole) as first:
        reduced_steps(whole, todome.apply(whole, reduction), steps)
    with recording(resumed) as second:
        reduced_steps(resumed, todome.apply(resumed, reduction), steps[5:])
    assert first.reduced == [False] * 2 + [True] * 4 + [False] * 2
    assert second.rows == first.rows[5:]


@pytest.mark.parametrize("window", [(0.0, 0.6), (0.3, 1.0), (0.2, 0.5)])
def test_one_timestep_for_the_batch_has_the_window_of_sampling(window: tuple[float, float]):
    start, stop = window
    unet = one_level_unet()
    scheduler: Any = ddim()
    patch = todome.apply(unet, Downsample(factor=2, start=start, stop=stop), scheduler=scheduler)
    scheduler.set_timesteps(10)
    with recording(unet) as sampled:
        for timestep in scheduler.timesteps:
            run(unet, **unet_inputs(grid=(4, 4)))
            scheduler.step(torch.zeros(1, 4, 4, 4), timestep, torch.zeros(1, 4, 4, 4))
    patch.remove()

    unet = trainable()
    patch = todome.apply(unet, Downsample(factor=2, start=start, stop=stop))
    noisy = [(999 - int(timestep), 1000) for timestep in scheduler.timesteps]
    assert reduced_steps(unet, patch, noisy) == sampled.reduced
