"""The clock: how often it calls, what it makes of the times."""

import gc

import pytest
import torch

from todome.tools import timing
from todome.tools.timing import Spread, measuring, milliseconds, settle, spread, timed_by_clock

CPU = torch.device("cpu")


def test_spread_of_known_values():
    assert spread([3.0, 1.0, 2.0, 5.0, 4.0]) == Spread(3.0, 2.0, 4.0)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0)


@pytest.mark.parametrize(("takes", "calls"), [(10.0, 10), (1.0, 50), (1000.0, 3)])
def test_calls_as_often_as_fits(monkeypatch, takes, calls):
    """A tenth of a second for calls of 10, 1 and 1000 ms: never fewer than 3 nor more than 50, after a warm-up."""
    made: list[int] = []
    monkeypatch.setattr(timing, "timed", lambda call, device, n: made.append(n) or [takes] * n)
    assert milliseconds(lambda: None, CPU, seconds=0.1) == [takes] * calls
    assert made == [2, calls - 1]


def test_a_gpu_is_kept_busy_for_a_second(monkeypatch):
    moments, calls = iter([0.0, 0.2, 0.9, 1.1]), []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(moments))
    monkeypatch.setattr(timing, "timed", lambda call, device, n: calls.append(n))
    settle(lambda: None, torch.device("cuda"))
    assert calls == [3, 3]


def test_every_call_is_timed_apart(monkeypatch):
    moments = iter([0.0, 0.5, 0.75])
    monkeypatch.setattr(timing, "now", lambda device: next(moments))
    assert timed_by_clock(lambda: None, CPU, 2) == [500.0, 250.0]


def test_nothing_is_learnt_or_collected_while_measuring():
    with measuring():
        assert torch.is_inference_mode_enabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    assert not torch.is_inference_mode_enabled()


def test_the_collector_comes_back_after_an_error():
    with pytest.raises(ZeroDivisionError), measuring():
        _ = 1 / 0
    assert gc.isenabled()
