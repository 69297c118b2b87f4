"""One thread draws for all: whatever happens to one run, the pipeline stays clean and the next one is drawn."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from todome import Downsample, Merge
from todome.hooks.modules import clocks_on
from todome.tools.app import previews
from todome.tools.app.form import Form, Order
from todome.tools.app.models import Models
from todome.tools.app.store import PictureStore
from todome.tools.app.worker import UNKNOWN, Drawing, DrawWorker, Failed, Finished, Progress, Stopped, Visitor, Waiting
from todome.tools.generate import Settings, Step, make_picture

SMALL = Settings("a rose", size=(64, 64), steps=2, guidance=3.0, reduction=Downsample(2), device="cpu")


@pytest.fixture
def worker(flowers: Any) -> Iterator[DrawWorker]:
    worker, own = DrawWorker(Models(Settings(), flowers), waiting=1, per_address=2), flowers.scheduler
    yield worker
    worker.close(60)
    assert not worker.is_drawing()
    assert not clocks_on(flowers.unet)
    assert flowers.scheduler is own


def kept(drawings: list[Drawing], _: Any) -> list[Drawing]:
    return drawings


def order(settings: Settings) -> Order:
    """The picture with full attention, and the reduced one unless that is all."""
    return Order((replace(settings, reduction=None),), (settings.reduction,) if settings.reduction else ())


def same(drawing: Any, settings: Settings, pipe: Any) -> bool:
    return bool((np.asarray(drawing.generated.picture) == np.asarray(make_picture(settings, pipe).picture)).all())


def test_dense_and_reduced_are_what_generate_makes(worker, flowers):
    *steps, end = worker.draw(Visitor("a"), order(SMALL), kept)
    dense, reduced = end.result
    assert same(dense, replace(SMALL, reduction=None), flowers)
    assert same(reduced, SMALL, flowers)
    finished = [(step.at, step.steps) for step in steps if isinstance(step, Progress) and step.done == 2]
    assert finished == [(0, 2), (1, 2)]
    assert dense.gigabytes is None


def test_a_dense_picture_that_is_known_is_not_drawn_again(worker):
    (dense,) = list(worker.draw(Visitor("a"), order(replace(SMALL, reduction=None)), kept))[-1].result
    *steps, end = worker.draw(Visitor("a"), order(SMALL), kept, {0: dense})
    assert end.result[0] is dense
    assert not any(step.at == 0 and step.done for step in steps if isinstance(step, Progress))


def test_a_time_is_known_after_the_first_steps(flowers):
    worker = DrawWorker(Models(Settings(), flowers), waiting=1, per_address=2, first=replace(SMALL, reduction=None))
    patience = time.monotonic() + 60
    while worker.estimates.is_empty() and time.monotonic() < patience:
        time.sleep(0.05)
    worker.close(60)
    step = worker.estimates.seconds(replace(SMALL, steps=1))
    assert step is not None
    assert worker.estimates.total([replace(SMALL, steps=10)] * 2) == pytest.approx(20 * step)
    larger = worker.estimates.seconds(replace(SMALL, steps=1, size=(128, 128)))
    assert larger is not None
    assert larger > 3 * step
    assert worker.estimates.total([replace(SMALL, model="other")]) is None


def test_two_at_once_get_what_each_asked_for(worker, flowers):
    wanted = {"a": SMALL, "b": replace(SMALL, prompt="tulips", seed=3, reduction=Merge(0.5), scheduler="euler-a")}
    found: dict[str, Any] = {}

    def draw(owner: str) -> None:
        found[owner] = list(worker.draw(Visitor(owner), order(wanted[owner]), kept))

    visitors = [threading.Thread(target=draw, args=owner) for owner in wanted]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join(60)
    for owner, settings in wanted.items():
        dense, reduced = found[owner][-1].result
        assert same(dense, replace(settings, reduction=None), flowers)
        assert same(reduced, settings, flowers)
    assert not worker.jobs


def test_an_error_is_told_and_leaves_the_pipeline_clean(worker, flowers):
    events = list(worker.draw(Visitor("a"), order(replace(SMALL, reduction=Downsample(99))), kept))
    text = "factor=99 cannot be used. Allowed: at most 16 on a grid of 16x16 tokens. "
    assert events[-1] == Failed(text + "Lower the factor, or make the picture larger.")
    assert isinstance(list(worker.draw(Visitor("a"), order(SMALL), kept))[-1], Finished)


def test_a_bug_is_logged_and_not_shown(worker, flowers, monkeypatch, caplog):
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a secret")

    with monkeypatch.context() as patch:
        patch.setattr(flowers.vae, "decode", broken)
        assert list(worker.draw(Visitor("a"), order(SMALL), kept))[-1] == Failed(UNKNOWN)
    assert "a secret" in caplog.text
    assert isinstance(list(worker.draw(Visitor("a"), order(SMALL), kept))[-1], Finished)


@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_run_can_be_stopped(worker, flowers, how):
    run = worker.draw(Visitor("a"), order(replace(SMALL, steps=500)), kept)
    for event in run:
        if isinstance(event, Progress) and not event.done:
            continue
        if isinstance(event, Progress):
            break
    if how == "stop":
        worker.stop("a")
        assert list(run)[-1] == Stopped()
    else:
        run.close()  # as when a tab is closed
    assert not worker.jobs
    assert isinstance(list(worker.draw(Visitor("a"), order(SMALL), kept))[-1], Finished)


def test_waiting_has_an_end_and_a_limit(worker):
    first = worker.draw(Visitor("a"), order(replace(SMALL, steps=500)), kept)
    next(first)
    second = worker.draw(Visitor("b"), order(SMALL), kept)
    assert next(second) == Waiting(1)
    with pytest.raises(ValueError, match=r"^A run of yours is not finished yet\. Wait for it, or stop it\.$"):
        next(worker.draw(Visitor("b"), order(SMALL), kept))
    with pytest.raises(ValueError, match=r"^The queue is full \(1 runs\)\. Try again in a minute\.$"):
        next(worker.draw(Visitor("c", "elsewhere"), order(SMALL), kept))
    worker.stop("b")
    assert list(second)[-1] == Stopped()
    worker.stop("nobody")
    first.close()
    assert not worker.jobs


def test_a_run_that_is_stopped_while_it_is_saved_leaves_nothing(worker, tmp_path):
    store = PictureStore(tmp_path, 10**6)

    def stop_and_save(drawings: list[Drawing], check_stop: Any) -> Any:
        worker.stop("a")
        return store.save_run(Form(), order(SMALL), 1, [(one, 1) for one in drawings], check_stop)

    assert list(worker.draw(Visitor("a"), order(SMALL), stop_and_save))[-1] == Stopped()
    assert isinstance(list(worker.draw(Visitor("b"), order(SMALL), kept))[-1], Finished)  # by now the first one is over
    assert not list(tmp_path.iterdir())


def test_closing_does_not_wait_for_a_long_step(flowers):
    """The visitors' runs end at once; the step goes on alone, and nothing comes of it."""
    inside, go_on, saved = threading.Event(), threading.Event(), []

    def wait_inside(*_: Any) -> None:
        inside.set()
        go_on.wait(60)

    hook = flowers.unet.register_forward_pre_hook(wait_inside)
    worker = DrawWorker(Models(Settings(), flowers), waiting=1, per_address=2)

    def save(drawings: list[Drawing], _: Any) -> None:
        saved.append(drawings)

    try:
        drawing, waiting = (worker.draw(Visitor(owner), order(SMALL), save) for owner in ("a", "b"))
        next(drawing)
        assert inside.wait(60)
        next(waiting)
        worker.close(0.1)
        assert worker.is_drawing()
        assert list(drawing)[-1] == list(waiting)[-1] == Stopped()
        with pytest.raises(ValueError, match=r"^The page is being closed\.$"):
            next(worker.draw(Visitor("c"), order(SMALL), kept))
    finally:
        go_on.set()
        hook.remove()
        worker.close(60)
    assert not worker.is_drawing()
    assert not saved
    assert not clocks_on(flowers.unet)


def test_a_size_the_model_cannot_make_is_refused_before_it_waits(worker):
    with pytest.raises(ValueError, match=r"^Width 68 does not work: this model needs multiples of 8\."):
        next(worker.draw(Visitor("a"), order(replace(SMALL, size=(68, 64))), kept))
    assert not worker.jobs


def test_the_time_of_previews_is_not_counted(flowers):
    began = time.perf_counter()
    made = make_picture(SMALL, flowers, lambda _: time.sleep(0.1))
    assert time.perf_counter() - began - made.seconds > 0.19  # two steps
    seen: list[Step] = []
    make_picture(replace(SMALL, scheduler="heun"), flowers, seen.append)
    assert [(step.done, step.steps) for step in seen] == [(done, 3) for done in range(1, 4)]


def test_previews_are_small_pictures_of_any_latents(flowers):
    seen: list[Step] = []
    make_picture(replace(SMALL, size=(192, 64), steps=1), flowers, seen.append)
    assert previews.shrink(seen[0].latents).shape[-2:] == (11, 32)
    assert previews.decode(flowers, previews.shrink(seen[0].latents)).size == (128, 44)
    made = previews.Previews(flowers)
    assert made.of(seen[0]).startswith("data:image/webp;base64,")
    assert made.of(seen[0]) == ""  # too early for another one
