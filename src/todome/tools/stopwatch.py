"""Time that a device works."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def now(device: torch.device) -> float:
    """Seconds, read when the device has done what it was given."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()
    return time.perf_counter()


class Stopwatch:
    """Seconds that a device has worked since the stopwatch was made, without the pauses."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.paused = device, 0.0
        self.began = now(device)

    @contextmanager
    def pause(self) -> Iterator[None]:
        began = now(self.device)
        yield
        self.paused += now(self.device) - began

    def seconds(self) -> float:
        return now(self.device) - self.began - self.paused
