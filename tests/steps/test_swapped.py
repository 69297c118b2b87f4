"""Schedulers that are swapped after apply."""

from sampling import CALLS, KNOWN_WARNINGS, SCHEDULERS, every_scheduler, unwatched, window
from zoo import draw, recording, tiny_pipeline

import todome
from todome import Downsample

pytestmark = KNOWN_WARNINGS


@every_scheduler
def test_the_scheduler_is_swapped_after_apply(name):
    pipeline = tiny_pipeline()
    patch = todome.apply(pipeline, Downsample(2, stop=0.6))
    draw(pipeline, steps=3)
    old, pipeline.scheduler = pipeline.scheduler, SCHEDULERS[name]()
    with recording(pipeline.unet, patch) as record:
        draw(pipeline)
        draw(pipeline)
    assert record.reduced == 2 * window(CALLS.get(name, 10), 0, 0.6)
    patch.remove()
    assert unwatched(old)
    assert unwatched(pipeline.scheduler)


def test_the_scheduler_is_swapped_there_and_back():
    pipeline = tiny_pipeline()
    old, new = pipeline.scheduler, SCHEDULERS["Euler"]()
    with todome.apply(pipeline, Downsample(2, stop=0.6)) as patch, recording(pipeline.unet, patch) as record:
        for scheduler in (new, old, new):
            pipeline.scheduler = scheduler
            draw(pipeline)
    assert record.reduced == 3 * window(10, 0, 0.6)
    assert unwatched(old)
    assert unwatched(new)


def test_the_scheduler_is_swapped_and_never_run():
    pipeline = tiny_pipeline()
    old = pipeline.scheduler
    patch = todome.apply(pipeline, Downsample(2))
    pipeline.scheduler = SCHEDULERS["Euler"]()
    patch.remove()
    assert unwatched(old)
    assert unwatched(pipeline.scheduler)
