"""`todome.bench`: every method on every case, dense first and last, written whole, gone on with; and its clock."""

import contextlib
import gc
import json
import os
import re
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from attention_clock import LEVEL_1, LEVEL_2, AttentionClock
from zoo import mini_unet, small_unet, talking, tiny_pipeline

import todome
from todome.hooks.attaching import patches_on
from todome.tools.measuring.methods import methods_named
from todome.tools.measuring.speed import AGAIN, BenchCase, CaseTimer, read_bench
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


QUICK = {"rounds": 2, "seconds": 0.0}
SMALL = [(128, 64)]
SQUARE = BenchCase("small", (64, 64), 1, "eager")
PAIRS_PER_MS = 1e4


@pytest.fixture
def unet():
    return small_unet()


def timer_of(unet: Any, case: BenchCase = SQUARE, **timing: Any) -> CaseTimer:
    return CaseTimer(unet, case, 10, Timing(**{"seconds": 0, "rounds": 2, **timing}))


def test_every_method_on_every_case(unet):
    methods = ["todome:2", "tomesd:0.5", "ca-tome:0.7", "todome:2+deepcache:2"]
    found = todome.bench(unet, [*SMALL, (64, 64)], methods, pictures=[2], name="small", **QUICK)
    assert found.cases() == [BenchCase("small", size, 2, "eager") for size in [*SMALL, (64, 64)]]
    for case in found.cases():
        assert [row.method for row in found.of(case)] == ["dense", *methods]
    for row in found.rows:
        assert row.ms
        assert row.per_second == 1000 / row.ms
        assert row.seconds == pytest.approx(25 * row.ms / 1000 / row.case.pictures, abs=1e-4)
        assert row.mib is None  # only a GPU can tell
    assert {"torch", "todome", "diffusers"} <= found.about["versions"].keys()


def test_speedups_are_those_of_the_tokens_that_are_left(unet):
    """At 128 x 64 pixels: 128 tokens at level 1, 32 at level 2. Merging halves queries as well as keys."""
    methods = ["todome:2", "todo:2", "todome:2,2", "tome:0.5", "tomesd:0.5", "deepcache:2", "todome:2+deepcache:2"]
    timer = timer_of(unet, replace(SQUARE, size=SMALL[0]), clock=AttentionClock(unet, PAIRS_PER_MS))
    rows = timer.run(methods_named(methods))
    speedup = {row.method: row.speedup or 0 for row in rows}

    def ms(pairs_1: int, pairs_2: int) -> float:
        return 1 + (LEVEL_1 * pairs_1 + LEVEL_2 * pairs_2) / PAIRS_PER_MS

    dense = ms(128 * 128, 32 * 32)
    assert all(row.ms_quartiles == (row.ms, row.ms) for row in rows)
    assert speedup["dense"] == 1
    assert speedup["todome:2"] == speedup["todo:2"] == round(dense / ms(128 * 32, 32 * 32), 3)
    assert speedup["todome:2,2"] == round(dense / ms(128 * 32, 32 * 8), 3)
    assert speedup["tome:0.5"] == speedup["tomesd:0.5"] == round(dense / ms(64 * 64, 32 * 32), 3)
    assert 1 < speedup["deepcache:2"] < speedup["todome:2+deepcache:2"]


def test_a_pipeline_pays_for_its_text_and_decoder_too():
    pipe = talking(tiny_pipeline(unet=small_unet()))
    (row, _) = todome.bench(pipe, [(32, 32)], ["todome:2"], steps=10, **QUICK).rows
    assert row.ms
    assert row.seconds
    assert row.seconds >= 10 * row.ms / 1000 - 1e-3


def test_speedups_are_compared_within_rounds(unet):
    """The second round ran at half the speed; the method was twice as fast as dense in both."""
    timer = timer_of(unet)
    timer.times = {"dense": [4.0, 8.0], "todome:2": [2.0, 4.0], AGAIN: [4.0, 8.0]}
    timer.peaks = {"todome:2": 12.34}
    row = timer.row("todome:2")
    assert (row.ms, row.speedup, row.speedup_quartiles, row.mib) == (3.0, 2.0, (2.0, 2.0), 12.3)
    assert row.seconds == 0.03


@pytest.mark.parametrize("reduced", [True, False])
def test_what_runs_out_of_memory_is_noted_and_the_others_go_on(unet, reduced):
    """Also where it is dense, already while the GPU is kept busy: a reduction may be all that fits."""

    def full(*_: Any) -> None:
        if bool(patches_on(unet)) == reduced:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 128.00 GiB. GPU 0 has")

    unet.register_forward_pre_hook(full)
    rows = todome.bench(unet, SMALL, ["todome:2"], **QUICK).rows
    note = "out of memory: 128.00 GiB at once"
    assert [(row.method, row.ms is None, row.note) for row in rows] == [
        ("dense", not reduced, "" if reduced else note),
        ("todome:2", reduced, note if reduced else ""),
    ]
    assert [row.speedup for row in rows] == [1.0 if reduced else None, None]


def test_what_reads_from_the_device_is_not_captured(unet):
    timer = timer_of(unet, replace(SQUARE, mode="cuda-graph"))
    _, ca_tome = methods_named(["ca-tome"])
    timer.measure("ca-tome", ca_tome)
    assert timer.row("ca-tome").note == "cannot be captured: it reads from the device"


@pytest.mark.thorough
def test_compiled_graphs_are_counted(fresh_dynamo, monkeypatch):
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, **options: compile(model, backend="eager", **options))
    rows = todome.bench(mini_unet(), SMALL, ["todome:2"], modes=["compile"], rounds=1, seconds=0).rows
    assert [(row.method, row.graphs, row.mib) for row in rows] == [("dense", 1, None), ("todome:2", 1, None)]
    assert all(row.ms for row in rows)


def test_goes_on_where_it_stopped_and_more_methods_lose_none(unet, tmp_path):
    out = tmp_path / "speed.json"
    first = todome.bench(unet, SMALL, ["todome:2"], out=out, **QUICK)
    both = todome.bench(unet, [*SMALL, (64, 64)], ["todome:2"], out=out, **QUICK)
    assert [case.size for case in both.cases()] == [(128, 64), (64, 64)]
    assert both.rows[: len(first.rows)] == first.rows  # to the last digit: it was not measured again
    assert read_bench(out) == both
    more = todome.bench(unet, SMALL, ["tome:0.5"], out=out, **QUICK)
    assert [row.method for row in more.rows] == ["dense", "tome:0.5", "todome:2"]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "spoilt", [lambda found: {}, lambda found: {**found, "about": {**found["about"], "python": "2.7"}}]
)
def test_a_file_of_something_else_or_of_another_machine_is_left_alone(unet, tmp_path, spoilt):
    out = tmp_path / "speed.json"
    todome.bench(unet, SMALL, ["todome:2"], out=out, **QUICK)
    out.write_text(json.dumps(spoilt(json.loads(out.read_text()))))
    before = out.read_text()
    with pytest.raises(ValueError, match=r"Allowed: a .*file"):
        todome.bench(unet, SMALL, ["todome:2"], out=out, **QUICK)
    assert out.read_text() == before


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"methods": ["todome:2,stop=0.8"]}, "method='todome:2,stop=0.8' cannot be used."),
        ({"methods": ["dense:20"]}, "method='dense:20' cannot be used."),
        ({"modes": ["fast"]}, "mode='fast' cannot be used. Allowed: eager, compile, cuda-graph, compile-cuda-graph."),
        ({"sizes": [(100, 64)]}, "Width 100 does not work: this model needs multiples of 16. Try 96 or 112."),
    ],
)
def test_what_cannot_be_measured_is_refused(unet, asked, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        todome.bench(unet, **{"sizes": SMALL, "methods": ["todome:2"], **QUICK, **asked})


@pytest.mark.parametrize("out", ["none/speed.json", "/proc/speed.json", "folder"])
def test_a_file_that_cannot_be_written_is_found_before_anything_is_measured(unet, tmp_path, out):
    (tmp_path / "folder").mkdir()
    unet.register_forward_pre_hook(lambda *_: pytest.fail("It was called."))
    with pytest.raises(OSError, match=r"^out='.*' "):
        todome.bench(unet, SMALL, ["todome:2"], out=os.path.join(tmp_path, out), **QUICK)
