"""`todome.bench`: every method on every case, dense first and last, written whole, gone on with."""

import json
import re
from typing import Any

import pytest
import torch
from attention_clock import LEVEL_1, LEVEL_2, AttentionClock
from tqdm import tqdm
from zoo import mini_unet, small_unet, talking, tiny_pipeline

import todome
from todome.hooks.modules import clocks_on
from todome.tools.measuring.methods import methods_named
from todome.tools.measuring.speed import AGAIN, BenchCase, CaseTimer, read_bench
from todome.tools.timing import Mode

QUICK = {"rounds": 2, "seconds": 0.0}
SMALL = [(128, 64)]


@pytest.fixture
def unet():
    return small_unet()


PAIRS_PER_MS = 1e4
TIMER = "todome.tools.measuring.speed.milliseconds"


def test_every_method_on_every_case(unet, monkeypatch):
    methods = ["todome:2", "todo:2", "tome:0.5", "tomesd:0.5", "ca-tome:0.7", "deepcache:2", "todome:2+deepcache:2"]
    monkeypatch.setattr(TIMER, AttentionClock(unet, PAIRS_PER_MS).timed)
    found = todome.bench(unet, [(128, 64), (64, 64)], methods, pictures=[2], name="small", **QUICK)
    assert found.cases() == [BenchCase("small", size, 2, "eager") for size in [(128, 64), (64, 64)]]
    for case in found.cases():
        assert [row.method for row in found.of(case)] == ["dense", *methods]
    for row in found.rows:
        assert row.ms
        assert row.ms_quartiles == (row.ms, row.ms)
        assert row.per_second == 1000 / row.ms
        assert row.seconds == pytest.approx(25 * row.ms / 1000 / row.case.pictures, abs=1e-4)
        assert row.mib is None  # only a GPU can tell
    assert {"torch", "todome", "diffusers"} <= found.about["versions"].keys()


def test_speedups_are_those_of_the_tokens_that_are_left(unet, monkeypatch):
    """At 128 x 64 pixels: 128 tokens at level 1, 32 at level 2. Merging halves queries as well as keys."""
    monkeypatch.setattr(TIMER, AttentionClock(unet, PAIRS_PER_MS).timed)
    methods = ["todome:2", "todo:2", "todome:2,2", "tome:0.5", "tomesd:0.5", "deepcache:2", "todome:2+deepcache:2"]
    rows = todome.bench(unet, SMALL, methods, **QUICK).rows
    speedup = {row.method: row.speedup or 0 for row in rows}

    def ms(pairs_1: int, pairs_2: int) -> float:
        return 1 + (LEVEL_1 * pairs_1 + LEVEL_2 * pairs_2) / PAIRS_PER_MS

    dense = ms(128 * 128, 32 * 32)
    assert speedup["dense"] == 1
    assert speedup["todome:2"] == speedup["todo:2"] == round(dense / ms(128 * 32, 32 * 32), 3)
    assert speedup["todome:2,2"] == round(dense / ms(128 * 32, 32 * 8), 3)
    assert speedup["tome:0.5"] == speedup["tomesd:0.5"] == round(dense / ms(64 * 64, 32 * 32), 3)
    assert 1 < speedup["deepcache:2"] < speedup["todome:2+deepcache:2"]


def test_the_model_is_left_as_it_was(unet):
    before = {name: type(module) for name, module in unet.named_modules()}
    forward = unet.forward
    todome.bench(unet, SMALL, ["todome:2", "tomesd:0.5", "ca-tome", "todome:2+deepcache"], **QUICK)
    assert {name: type(module) for name, module in unet.named_modules()} == before
    assert unet.forward == forward
    assert not clocks_on(unet)


def test_a_pipeline_pays_for_its_text_and_decoder_too(monkeypatch):
    """A batch of one step takes 2 s and one of two steps 2.5 s: of both, 1.5 s are not the denoiser's."""
    pipe = talking(tiny_pipeline(unet=small_unet()))
    taken = {1: 2.0, 2: 2.5}
    moments = iter([0, 9.0, 9.0, 9.0 + taken[1], 20.0, 20.0 + taken[2]])  # the first one warms up
    monkeypatch.setattr("todome.tools.measuring.speed.now", lambda device: next(moments))
    monkeypatch.setattr(TIMER, lambda *_: [500.0])
    row = todome.bench(pipe, [(32, 32)], ["todome:2"], steps=10, pictures=[2], **QUICK).rows[0]
    assert row.ms == 500
    assert row.seconds == (10 * 0.5 + 1.5) / 2


def test_speedups_are_compared_within_rounds(unet):
    """The second round ran at half the speed; the method was twice as fast as dense in both."""
    timer = CaseTimer(unet, BenchCase("small", (64, 64), 1, "eager"), steps=10, seconds=0, bar=None)
    timer.times = {"dense": [4.0, 8.0], "todome:2": [2.0, 4.0], AGAIN: [4.0, 8.0]}
    timer.peaks = {"todome:2": 12.34}
    row = timer.row("todome:2")
    assert (row.ms, row.speedup, row.speedup_quartiles, row.mib) == (3.0, 2.0, (2.0, 2.0), 12.3)
    assert row.seconds == 0.03


def test_kinds_of_steps_count_by_their_share(unet, monkeypatch):
    """DeepCache with an interval of 4 computes one step in four, and the times of the others are measured too."""
    timer = CaseTimer(unet, BenchCase("small", (64, 64), 1, "eager"), steps=10, seconds=0, bar=None)
    times = iter([8.0, 4.0])
    monkeypatch.setattr("todome.tools.measuring.speed.milliseconds", lambda *_: [next(times)])
    with methods_named(["deepcache:4"])[1].on(unet) as kinds:
        assert timer.mean_ms(kinds, methods_named(["deepcache:4"])[1]) == 0.25 * 8 + 0.75 * 4


def test_what_runs_out_of_memory_is_noted_and_the_rest_goes_on(unet, monkeypatch):
    def full(_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    timer = CaseTimer(unet, BenchCase("small", (64, 64), 1, "eager"), steps=10, seconds=0, bar=tqdm(disable=True))
    dense, todome_2 = methods_named(["todome:2"])
    own = timer.mean_ms
    monkeypatch.setattr(timer, "mean_ms", lambda *words: full(words) if clocks_on(unet) else own(*words))
    rows = timer.run([dense, todome_2], rounds=2)
    assert [(row.method, row.ms is None, row.note) for row in rows] == [
        ("dense", False, ""),
        ("todome:2", True, "out of memory: 20.00 GiB at once"),
    ]


def test_where_dense_runs_out_of_memory_the_others_go_on(unet, monkeypatch):
    """Already while the GPU is kept busy: a reduction may be all that fits."""
    own = type(unet).forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not clocks_on(unet):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 128.00 GiB. GPU 0 has")
        return own(unet, *args, **kwargs)

    monkeypatch.setattr(type(unet), "forward", forward)
    monkeypatch.setattr("todome.tools.measuring.speed.settle", lambda call, device: call())
    rows = todome.bench(unet, SMALL, ["todome:2"], **QUICK).rows
    assert [(row.method, row.ms is None, row.speedup, row.note) for row in rows] == [
        ("dense", True, None, "out of memory: 128.00 GiB at once"),
        ("todome:2", False, None, ""),
    ]


def test_graphs_are_counted_and_dense_is_compiled_once(monkeypatch, fresh_dynamo):
    """On a CPU nothing is captured; what is captured on a GPU is what is timed here."""
    compiled, compile = [], torch.compile

    def watched(model: torch.nn.Module, **options: Any) -> Any:
        compiled.append(bool(clocks_on(model)))
        return compile(model, backend="eager", **options)

    monkeypatch.setattr(torch, "compile", watched)
    monkeypatch.setattr("todome.tools.measuring.speed.check_modes", lambda modes: None)
    monkeypatch.setattr("todome.tools.measuring.speed.captured", lambda call: call)
    modes: list[Mode] = ["compile-cuda-graph"]
    rows = todome.bench(mini_unet(), SMALL, ["todome:2"], modes=modes, rounds=1, seconds=0).rows
    assert compiled == [False, True]
    assert [(row.method, row.graphs, row.mib) for row in rows[:2]] == [("dense", 1, None), ("todome:2", 1, None)]


def test_compiled_calls_are_timed(unet, monkeypatch):
    """What torch.compile makes of a patched UNet is tested with the guarantees; here, that it is what is called."""
    compiled: list[bool] = []
    monkeypatch.setattr(torch, "compile", lambda model, **_: compiled.append(bool(clocks_on(model))) or model)
    rows = todome.bench(unet, SMALL, ["todome:2"], modes=["compile"], rounds=1, seconds=0).rows
    assert all(row.ms for row in rows)
    assert compiled == [False, True, False]


def test_goes_on_where_it_stopped(unet, tmp_path, monkeypatch):
    out = tmp_path / "speed.json"
    measured: list[BenchCase] = []
    run = CaseTimer.run
    monkeypatch.setattr(CaseTimer, "run", lambda self, *rest: (measured.append(self.case), run(self, *rest))[1])
    first = todome.bench(unet, SMALL, ["todome:2"], out=out, **QUICK)
    both = todome.bench(unet, [*SMALL, (64, 64)], ["todome:2"], out=out, **QUICK)
    assert [case.size for case in measured] == [(128, 64), (64, 64)]
    assert both.rows[: len(first.rows)] == first.rows
    assert read_bench(out) == both
    assert not list(tmp_path.glob(".*"))


def test_more_methods_lose_none(unet, tmp_path):
    out = tmp_path / "speed.json"
    todome.bench(unet, SMALL, ["todome:2"], out=out, **QUICK)
    more = todome.bench(unet, SMALL, ["tome:0.5"], out=out, **QUICK)
    assert [row.method for row in more.rows] == ["dense", "tome:0.5", "todome:2"]


def test_numbers_of_another_machine_are_not_mixed_in(unet, tmp_path):
    out = tmp_path / "speed.json"
    todome.bench(unet, SMALL, ["todome:2"], out=out, **QUICK)
    found = json.loads(out.read_text())
    out.write_text(json.dumps({**found, "about": {**found["about"], "python": "2.7"}}))
    with pytest.raises(ValueError, match="numbers of two machines do not compare"):
        todome.bench(unet, SMALL, ["todome:2"], out=out, **QUICK)
    assert json.loads(out.read_text())["about"]["python"] == "2.7"


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            {"methods": ["todome:2,stop=0.8"]},
            "method='todome:2,stop=0.8' cannot be used. Allowed: what is the same at every step. Compare whole "
            "pictures with todome eval.",
        ),
        (
            {"methods": ["dense:20"]},
            "method='dense:20' cannot be used. Allowed: what is the same at every step. Compare whole pictures with "
            "todome eval.",
        ),
        (
            {"modes": ["fast"]},
            "mode='fast' cannot be used. Allowed: eager, compile, cuda-graph, compile-cuda-graph. eager is what a "
            "plain pipeline sees.",
        ),
        (
            {"sizes": [(100, 64)]},
            "Width 100 does not work: this model needs multiples of 16. Try 96 or 112.",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(unet, asked, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        todome.bench(unet, **{"sizes": SMALL, "methods": ["todome:2"], **QUICK, **asked})


def test_a_file_of_something_else_is_left_alone(unet, tmp_path):
    out = tmp_path / "notes.json"
    out.write_text("{}")
    with pytest.raises(ValueError, match=re.escape("Allowed: a JSON file that todome bench wrote.")):
        todome.bench(unet, SMALL, ["todome:2"], out=out, **QUICK)
    assert out.read_text() == "{}"
