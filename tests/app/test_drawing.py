"""One run is drawn at a time: whatever happens to it, the pipeline stays clean and the next one is drawn."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from todome import Downsample, Merge
from todome.hooks.attaching import patches_on
from todome.tools.app.drawing import UNKNOWN, Failed, Finished, Progress, Stopped, Worker
from todome.tools.app.form import Order
from todome.tools.generate import Settings, Step, make_picture

SMALL = Settings("a rose", size=(64, 64), steps=2, guidance=3.0, device="cpu")


@pytest.fixture
def worker(flowers: Any) -> Iterator[Worker]:
    worker, own = Worker(flowers), flowers.scheduler
    yield worker
    with worker.drawing:  # nothing goes on
        assert not worker.jobs
    assert not patches_on(flowers.unet)
    assert flowers.scheduler is own


def order(reduction: Any = None, **changes: Any) -> Order:
    """The picture with full attention, and the reduced one where there is a reduction."""
    return Order((replace(SMALL, **changes),), (reduction,) if reduction else ())


def draws(worker: Worker, what: Order, known: Any = None) -> Callable[[Any], Any]:
    return lambda job: worker.draw(what, known or {}, job)


def same(made: Any, settings: Settings, pipe: Any) -> bool:
    return bool((np.asarray(made.picture) == np.asarray(make_picture(settings, pipe).picture)).all())


def test_dense_and_reduced_are_what_generate_makes(worker, flowers):
    *steps, end = worker.run("a", draws(worker, order(Downsample(2))))
    dense, reduced = end.result
    assert same(dense, SMALL, flowers)
    assert same(reduced, replace(SMALL, reduction=Downsample(2)), flowers)
    assert [(step.at, step.steps) for step in steps if step.done == 2] == [(0, 2), (1, 2)]
    *steps, end = worker.run("a", draws(worker, order(Downsample(2)), {0: dense}))
    assert end.result[0] is dense
    assert not any(step.at == 0 and step.done for step in steps)


def test_two_at_once_get_what_each_asked_for(worker, flowers):
    wanted = {"a": order(Downsample(2)), "b": order(Merge(0.5), prompt="tulips", seed=3, scheduler="euler-a")}
    found: dict[str, Any] = {}

    def draw(tab: str) -> None:
        found[tab] = list(worker.run(tab, draws(worker, wanted[tab])))[-1].result

    tabs = [threading.Thread(target=draw, args=tab) for tab in wanted]
    for tab in tabs:
        tab.start()
    for tab in tabs:
        tab.join(60)
    for name, asked in wanted.items():
        assert all(same(made, one, flowers) for made, one in zip(found[name], asked.pictures(), strict=True))


def test_an_error_is_told_and_leaves_the_pipeline_clean(worker, caplog):
    *_, end = worker.run("a", draws(worker, order(Downsample(99))))
    assert isinstance(end, Failed)
    assert end.sentence.startswith("factor=99 cannot be used. Allowed: at most 16 on a grid of 16x16 tokens.")
    *_, end = worker.run("a", draws(worker, order(size=(68, 64))))
    assert "Width 68 does not work: this model needs multiples of 8." in end.sentence
    assert not caplog.records
    assert isinstance(list(worker.run("a", draws(worker, order())))[-1], Finished)


def test_a_bug_is_logged_and_not_shown(worker, flowers, caplog):
    def broken(*_: Any) -> Any:
        raise RuntimeError("a secret")

    hook = flowers.unet.register_forward_pre_hook(broken)
    assert list(worker.run("a", draws(worker, order())))[-1] == Failed(UNKNOWN)
    hook.remove()
    assert "a secret" in caplog.text
    assert isinstance(list(worker.run("a", draws(worker, order())))[-1], Finished)


@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_run_is_stopped_in_the_middle_of_a_step(worker, flowers, how):
    """It ends for its tab at once. The step goes on alone, nothing comes of it, and the next run waits for its end."""
    inside, go_on = threading.Event(), threading.Event()

    def wait_inside(*_: Any) -> None:
        inside.set()
        assert go_on.wait(60)

    hook = flowers.unet.register_forward_pre_hook(wait_inside)
    run = worker.run("a", draws(worker, order(Downsample(2))))
    next(run)
    assert inside.wait(60)
    if how == "stop":
        worker.stop("a")
        assert list(run)[-1] == Stopped()
    else:
        run.close()  # as when a tab is closed
    assert worker.drawing.locked()
    hook.remove()
    threading.Timer(0.2, go_on.set).start()
    *_, end = worker.run("b", draws(worker, order(Downsample(2))))
    assert go_on.is_set()
    assert same(end.result[1], replace(SMALL, reduction=Downsample(2)), flowers)
    worker.stop("nobody")


def test_another_run_of_a_tab_stops_the_one_before(worker):
    first = worker.run("a", draws(worker, order(steps=500)))
    assert isinstance(next(first), Progress)
    assert isinstance(list(worker.run("a", draws(worker, order())))[-1], Finished)
    assert list(first)[-1] == Stopped()


def test_the_time_of_previews_is_not_counted(flowers):
    began = time.perf_counter()
    made = make_picture(SMALL, flowers, lambda _: time.sleep(0.1))
    assert time.perf_counter() - began - made.seconds > 0.19  # two steps
    seen: list[Step] = []
    make_picture(replace(SMALL, scheduler="heun"), flowers, seen.append)
    assert [(step.done, step.steps) for step in seen] == [(done, 3) for done in range(1, 4)]
