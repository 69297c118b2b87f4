"""Timing: calls as often as fits into the time, every way once in each round, nothing learnt or collected meanwhile."""

import contextlib
import gc
import time

import pytest
import torch

from todome.tools.timing import Stopwatch, Timing, measuring, milliseconds

CPU = torch.device("cpu")


class Ticking:
    """A clock that a call moves on by so many milliseconds."""

    def __init__(self, *takes: float) -> None:
        self.takes, self.calls, self.ms = takes, 0, 0.0

    def call(self) -> None:
        self.ms += self.takes[min(self.calls, len(self.takes) - 1)]
        self.calls += 1

    def __call__(self) -> float:
        return self.ms / 1000


@pytest.mark.parametrize(("seconds", "times"), [(0.0, 1), (0.095, 10)])
def test_calls_are_timed_apart_after_a_warm_up_as_often_as_fits(seconds, times):
    clock = Ticking(400.0, 10.0)
    assert milliseconds(clock.call, CPU, seconds, clock) == pytest.approx([10.0] * times)
    assert clock.calls == times + 1


def test_a_torch_with_several_threads_is_timed_with_them():
    used = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = []
        milliseconds(lambda: seen.append(torch.get_num_threads()), CPU, 0)
        assert {*seen} == {2}
    finally:
        torch.set_num_threads(used)


def test_every_way_has_its_turn_in_each_round_until_patience_is_over():
    assert list(Timing(rounds=2).turns("abc")) == [*"abcabc"]
    assert list(Timing(rounds=5, patience=0.0).turns("ab")) == [*"abab"]  # two rounds in any case


def test_nothing_is_learnt_or_collected_while_measuring_and_both_are_after_an_error():
    with contextlib.suppress(ZeroDivisionError), measuring():
        assert torch.is_inference_mode_enabled()
        assert not gc.isenabled()
        raise ZeroDivisionError
    assert gc.isenabled()
    assert not torch.is_inference_mode_enabled()


def test_pauses_are_not_counted():
    watch, began = Stopwatch(CPU), time.perf_counter()
    with watch.pause():
        time.sleep(0.05)
    assert watch.seconds() <= time.perf_counter() - began - 0.05
