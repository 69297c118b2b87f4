"""Time and memory of a call on a device, measured again and again; and the seconds that a device works."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import torch

Mode: TypeAlias = Literal["eager", "compile", "cuda-graph", "compile-cuda-graph"]
MODES = get_args(Mode)
LEAST_ROUNDS = 2
SETTLED = 1.0  # seconds
Turn = TypeVar("Turn")


@dataclass(frozen=True)
class Timing:
    """How long several ways to make a call are timed: in rounds in which each has its turn, so that drift meets all."""

    seconds: float = 0.1  # of each turn
    rounds: int = 5  # at most
    patience: float = 4.0  # seconds after which no further round begins
    clock: Callable[[], float] | None = None  # another than that of the machine, in seconds

    def turns(self, ways: Sequence[Turn]) -> Iterator[Turn]:
        """Every way once in each round."""
        began = time.perf_counter()
        for done in range(self.rounds):
            if done >= LEAST_ROUNDS and time.perf_counter() - began > self.patience:
                break
            yield from ways

    def milliseconds(self, call: Callable[[], Any], device: torch.device) -> list[float]:
        return milliseconds(call, device, self.seconds, self.clock)


class Spread(NamedTuple):
    """The middle of some measurements, and the quarter of them below and above."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(statistics.median(values), low, high)


def milliseconds(
    call: Callable[[], Any], device: torch.device, seconds: float, clock: Callable[[], float] | None = None
) -> list[float]:
    """What a call takes, after a warm-up, as often as fits into the seconds.

    Short calls are timed in blocks without a wait between them, as a pipeline makes them: a host may run ahead of its
    GPU.
    """
    from torch.utils.benchmark import Timer

    clock, threads = clock or partial(now, device), torch.get_num_threads()  # its own default is one thread
    timer = Timer("call()", timer=clock, globals={"call": call}, num_threads=threads)
    return [1000 * taken for taken in timer.blocked_autorange(min_run_time=seconds).times]


def settle(call: Callable[[], Any], device: torch.device) -> None:
    """Keeps a GPU busy until its clock stands still: one that was idle first runs faster, then slower."""
    if device.type == "cuda":
        milliseconds(call, device, SETTLED)


def peak_mib(call: Callable[[], Any], device: torch.device) -> float | None:
    """Working memory of one call, beyond weights and inputs; only a GPU can tell."""
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


@contextmanager
def measuring() -> Iterator[None]:
    """No gradients, and no pauses of the garbage collector, which are longer than what is measured."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with torch.inference_mode():
            yield
    finally:
        if collecting:
            gc.enable()


def captured(call: Callable[[], Any]) -> Callable[[], None]:
    """The call as a CUDA graph, whose replay is the GPU's own time."""
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


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
