"""The taps on a scheduler: seen by nobody, copied with nothing, and gone without a trace."""

import copy
import gc
import inspect
import weakref
from typing import Any

import pytest
from sampling import (
    KNOWN_WARNINGS,
    SCHEDULERS,
    call_diffusers,
    every_scheduler,
    loop,
    run,
    through_pickle,
    untapped,
    window,
)
from zoo import draw, one_level_unet, recording, tiny_pipeline

import todome
from todome import Downsample

pytestmark = KNOWN_WARNINGS


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
