"""Time and memory of a call: on the device's own clock, after a warm-up, again and again."""

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import torch

from .stopwatch import now

Mode: TypeAlias = Literal["eager", "compile", "cuda-graph", "compile-cuda-graph"]
MODES = get_args(Mode)
LEAST_CALLS, MOST_CALLS = 3, 50
SETTLED = 1.0  # seconds


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


def milliseconds(call: Callable[[], Any], device: torch.device, seconds: float) -> list[float]:
    """What each of as many calls took as fit into the seconds, after one that is not timed."""
    _, once = timed(call, device, 2)
    more = min(MOST_CALLS, max(LEAST_CALLS, int(1000 * seconds / max(once, 1e-3)))) - 1
    return [once, *timed(call, device, more)]


def settle(call: Callable[[], Any], device: torch.device) -> None:
    """Keeps a GPU busy until its clock stands still: one that was idle first runs faster, then slower."""
    began = time.perf_counter()
    while device.type == "cuda" and time.perf_counter() - began < SETTLED:
        timed(call, device, LEAST_CALLS)


def timed(call: Callable[[], Any], device: torch.device, calls: int) -> list[float]:
    return timed_by_events(call, calls) if device.type == "cuda" else timed_by_clock(call, device, calls)


def timed_by_events(call: Callable[[], Any], calls: int) -> list[float]:
    """Without a wait between the calls, as a pipeline makes them: the host may run ahead of the GPU."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in itertools.pairwise(events)]


def timed_by_clock(call: Callable[[], Any], device: torch.device, calls: int) -> list[float]:
    moments = [now(device)]
    for _ in range(calls):
        call()
        moments.append(now(device))
    return [1000 * (b - a) for a, b in itertools.pairwise(moments)]


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
