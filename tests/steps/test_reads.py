"""Steps are counted without reading a value from the device, which on a GPU would wait for it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sampling import KNOWN_WARNINGS, SCHEDULERS, call_diffusers, window
from torch.utils._python_dispatch import TorchDispatchMode
from zoo import draw, one_level_unet, recording, tiny_pipeline

import todome
from todome import Downsample, Merge

pytestmark = KNOWN_WARNINGS


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


@pytest.mark.parametrize(
    ("name", "reduction"),
    [(name, Merge(stop=0.6)) for name in ("DDIM", "PNDM", "Euler", "DPM++ 2M", "UniPC")]
    + [(name, Downsample(2, stop=0.6)) for name in ("PNDM", "Euler")],
    ids=str,
)
def test_no_value_is_read_per_step(name, reduction):
    pipeline = tiny_pipeline(SCHEDULERS[name]())
    dense = [reads_of(pipeline, steps) for steps in (3, 6)]
    todome.apply(pipeline, reduction)
    draw(pipeline, steps=2)  # makes the tables
    patched = [reads_of(pipeline, steps) for steps in (3, 6)]
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
    assert record.phases == list(range(5))
    assert record.reduced == window(5, 0, 0.6)
