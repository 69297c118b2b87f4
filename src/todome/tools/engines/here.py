"""Engine in this process: one worker after the other's items, or a thread for each device."""

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event, Lock
from typing import Any

import torch

from . import Place, Worker

OPENING = Lock()  # what opens pipelines sets for a moment how talkative diffusers is


class Here:
    """Engine with one worker for each device."""

    remote = False

    def __init__(self, devices: Sequence[str] = ("auto",)) -> None:
        self.places = [Place(device, device) for device in devices]

    def run(self, worker: Worker, items: Sequence[Any], title: str) -> Iterator[Any]:
        if items and len(self.places) == 1:
            yield from run_in_turn(worker, items, self.places[0])
        elif items:
            yield from run_in_threads(worker, items, self.places)


def devices_here(device: str) -> list[str]:
    """All GPUs where one would be taken by itself, else the device of that name."""
    count = torch.cuda.device_count() if device == "auto" else 0
    return [f"cuda:{number}" for number in range(count)] or [device]


@contextmanager
def opened(worker: Worker, place: Place) -> Iterator[Worker]:
    with OPENING:
        worker.open(place)
    try:
        yield worker
    finally:
        worker.close()


def run_in_turn(worker: Worker, items: Sequence[Any], place: Place) -> Iterator[Any]:
    with opened(worker, place):
        for item in items:
            yield worker.work(item)


def run_in_threads(worker: Worker, items: Sequence[Any], places: Sequence[Place]) -> Iterator[Any]:
    """Threads take the next item when they are done with one. An error in any of them ends all."""
    left, done, stop = iter(items), SimpleQueue[tuple[Any, BaseException | None]](), Event()
    taking = Lock()

    def serve(place: Place) -> None:
        try:
            with opened(copy.copy(worker), place) as mine:
                while not stop.is_set():
                    with taking:
                        item = next(left, stop)
                    if item is stop:
                        return
                    done.put((mine.work(item), None))
        except BaseException as error:  # to be raised where it is seen
            done.put((None, error))

    with ThreadPoolExecutor(len(places)) as pool:
        try:
            for place in places:
                pool.submit(serve, place)
            for _ in items:
                result, error = done.get()
                if error is not None:
                    raise error
                yield result
        finally:
            stop.set()
