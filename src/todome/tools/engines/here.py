"""Engine in this process: one worker after the other's items, or a thread for each device."""

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from threading import Lock, local
from typing import Any

import torch

from . import Place, Worker


class Here:
    """Engine with one worker for each device."""

    remote = False

    def __init__(self, devices: Sequence[str] = ("auto",)) -> None:
        self.places = [Place(device, device) for device in devices]

    def run(self, worker: Worker, items: Sequence[Any], title: str) -> Iterator[Any]:
        if items and len(self.places) == 1:
            with opened(worker, self.places[0]):
                yield from map(worker.work, items)
        elif items:
            yield from run_in_threads(worker, items, self.places)


def devices_here(device: str) -> list[str]:
    """All GPUs where one would be taken by itself, else the device of that name."""
    count = torch.cuda.device_count() if device == "auto" else 0
    return [f"cuda:{number}" for number in range(count)] or [device]


@contextmanager
def opened(worker: Worker, place: Place) -> Iterator[Worker]:
    worker.open(place)
    try:
        yield worker
    finally:
        worker.close()


def run_in_threads(worker: Worker, items: Sequence[Any], places: Sequence[Place]) -> Iterator[Any]:
    """Threads, each with a worker of its own, take the next item when they are done with one. An error ends all."""
    free, mine, opening = list(places), local(), Lock()  # what opens pipelines sets for a moment how diffusers logs

    def work(item: Any) -> Any:
        if not hasattr(mine, "worker"):
            with opening:
                mine.worker = workers.enter_context(opened(copy.copy(worker), free.pop(0)))
        return mine.worker.work(item)

    with ExitStack() as workers:
        pool = ThreadPoolExecutor(len(places))
        try:
            for done in as_completed([pool.submit(work, item) for item in items]):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)
