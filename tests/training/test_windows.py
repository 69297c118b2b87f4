"""When it is on in training: a share of the training, or, where a batch has one timestep, of the noise."""

from typing import Any

import pytest
from learners import gradients, loss_of, unet_batch
from zoo import draw, one_level_unet, recording, tiny_pipeline

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


@pytest.mark.parametrize(("start", "stop"), [(0.0, 0.6), (0.3, 1.0), (0.2, 0.5)])
def test_one_timestep_for_the_batch_has_the_window_of_sampling(start: float, stop: float):
    pipeline, reduction = tiny_pipeline(), Downsample(factor=2, start=start, stop=stop)
    with todome.apply(pipeline, reduction), recording(pipeline.unet) as sampled:
        draw(pipeline)
    unet = trainable()
    noisy = [(999 - int(timestep), 1000) for timestep in pipeline.scheduler.timesteps]
    assert reduced_steps(unet, todome.apply(unet, reduction), noisy) == sampled.reduced
