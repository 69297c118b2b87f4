"""`todome bench`: from words to tables; how it goes on, and what it refuses."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from todome.hooks.modules import clocks_on
from todome.tools.commands.bench import cells
from todome.tools.measuring.methods import EXAMPLES
from todome.tools.measuring.speed import BenchCase, BenchRow, CaseTimer, read_bench

QUICK = ("--methods", "todome:2", "--rounds", 1)
OUT = ("-o", "speed.json")
MEASURED = r"[\d.]+(?: ± [\d.]+)? │ [\d.]+x(?: ± [\d.]+)? │ [\d.]+ │ [\d.]+ │ │"  # one round has no spread


@pytest.fixture(autouse=True)
def quick(small_sd15: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("todome.tools.timing.MOST_CALLS", 3)
    monkeypatch.setattr(sys.modules[cells.__module__], "DRIFTED", 1e9)  # the machine of the tests may do so any time


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sizes that were measured."""
    seen: list[Any] = []
    own = CaseTimer.run
    monkeypatch.setattr(CaseTimer, "run", lambda self, *rest: seen.append(self.case.size) or own(self, *rest))
    return seen


def told(result: Any) -> str:
    """What a run without mishap prints, its lines in one."""
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return " ".join(result.stdout.split())


def test_a_table_for_every_size(run, folder):
    Path("tiny").symlink_to(folder)
    methods = ("dense", "todome:2", "todo:2", "tome")
    text = told(run("bench", "tiny", "--size", 32, 64, "--methods", *methods))
    for size in ("32x32", "64x64"):
        assert f"tiny, {size} pixels, 1 at once, eager" in text
    for method in methods:
        assert len(re.findall(f"│ {method} │ {MEASURED}", text)) == 2
    assert not list(Path().glob("*.json"))


def test_a_table_for_every_batch(run):
    text = told(run("bench", "sd15", "--size", "64x32", "--batch", 1, 2, *QUICK))
    assert re.findall(r"sd15, (\w+) pixels, (\d) at once, eager", text) == [("64x32", "1"), ("64x32", "2")]


def test_what_was_measured_is_not_measured_again(run, sizes):
    table, _, end = told(run("bench", "sd15", "--size", 32, *QUICK, *OUT)).partition("Results: speed.json")
    assert not end
    assert told(run("bench", "sd15", "--size", 32, 64, *QUICK, *OUT)).startswith(table)
    assert sizes == [(32, 32), (64, 64)]
    assert [case.size for case in read_bench(Path("speed.json")).cases()] == sizes


def test_the_old_name_of_the_option_works_with_a_note(run, sizes):
    result = run("bench", "sd15", "--sizes", 32, "64x32", *QUICK)
    assert result.exit_code == 0
    assert result.stderr == "Note: --sizes is now --size, with the same values. The old name will go in version 0.3.\n"
    assert sizes == [(32, 32), (64, 32)]


@pytest.mark.parametrize(("again", "said"), [(11.5, "15% slower"), (8.0, "20% faster"), (10.2, "")])
def test_a_machine_that_drifts(run, monkeypatch, again, said):
    """Dense stands in one row, with the spread of all its times; what it does from the first to the last is a note."""
    times = iter([10.0, 5.0, again] * 3)
    monkeypatch.setattr(CaseTimer, "mean_ms", lambda *_: next(times))
    monkeypatch.setattr(sys.modules[cells.__module__], "DRIFTED", 0.05)
    result = run("bench", "sd15", "--size", 32, "--methods", "todome:2", "--rounds", 3)
    assert " ".join(result.stdout.split()).count("│ dense ") == 1
    text = f"Note: This machine became {said} within a round, measured by dense at its start and end: trust small "
    assert result.stderr == (f"{text}differences little.\n" if said else "")


def test_interrupted(run, monkeypatch):
    own = CaseTimer.run

    def interrupted(self: CaseTimer, *rest: Any) -> Any:
        if self.case.size == (64, 64):
            raise KeyboardInterrupt
        return own(self, *rest)

    monkeypatch.setattr(CaseTimer, "run", interrupted)
    goes_on, lost = "What is done is in speed.json: the same command continues it.", "Keep what is done with --out."
    for out, kept in [(OUT, goes_on), ((), lost)]:
        result = run("bench", "sd15", "--size", 32, 64, *QUICK, *out)
        assert (result.exit_code, result.stdout, result.stderr) == (130, "", f"Interrupted. {kept}\n")
    assert [case.size for case in read_bench(Path("speed.json")).cases()] == [(32, 32)]


def without_memory(reduced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reduced, or what is not, has too little of it."""
    own = CaseTimer.mean_ms

    def full(self: CaseTimer, *words: Any) -> float:
        if bool(clocks_on(self.call.model)) == reduced:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return own(self, *words)

    monkeypatch.setattr(CaseTimer, "mean_ms", full)


def test_what_did_not_run_shows_why(run, monkeypatch):
    without_memory(True, monkeypatch)
    text = told(run("bench", "sd15", "--size", 32, *QUICK))
    assert "│ todome:2 │ out of memory │ │ │ │ │" in text
    assert re.search(f"│ dense │ {MEASURED}", text)


def test_where_dense_does_not_run_there_is_no_speed_up(run, monkeypatch):
    without_memory(False, monkeypatch)
    text = told(run("bench", "sd15", "--size", 32, *QUICK))
    assert "│ dense │ out of memory │ │ │ │ │" in text
    assert re.search(r"│ todome:2 │ [\d.]+ │ │ [\d.]+ │ [\d.]+ │ │", text)


def test_modes_are_measured_one_by_one(run, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    text = told(run("bench", "sd15", "--size", 32, "--compile", *QUICK))
    assert re.findall(r"1 at once, (\w+)", text) == ["eager", "compile"]


MODELS = (
    'Allowed: "todome-flowers", a folder, a .safetensors checkpoint, or a hub id such as '
    '"stable-diffusion-v1-5/stable-diffusion-v1-5".'
)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            "sd15 --methods fast",
            f"method='fast' cannot be used. Allowed: {EXAMPLES}. Join several with +, each setting with a comma.",
        ),
        (
            "sd15 --methods dense",
            f"methods=['dense'] cannot be used. Allowed: dense and at least one more. Choose from {EXAMPLES}.",
        ),
        (
            "sd15 --methods dense:20",
            "method='dense:20' cannot be used. Allowed: what is the same at every step. "
            "Compare whole pictures with todome eval.",
        ),
        (
            "sd15 --size 100",
            "Width 100 does not work: this model needs multiples of 16. Try 96 or 112.",
        ),
        ("nowhere", f"model='nowhere' cannot be used. {MODELS} Nothing is there: check the spelling."),
        (
            "sd15 --cuda-graph",
            "mode='cuda-graph' cannot be used. Allowed: eager or compile without a CUDA GPU. Leave it out.",
        ),
    ],
)
def test_what_cannot_be_measured(refused, monkeypatch, words, text):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert refused("bench", *words.split()) == text


def test_no_size_at_all(refused):
    told = "Invalid value for --size: 'large' is not a size, such as 512 or 512x768."
    assert refused("bench", "sd15", "--size", "64", "large", code=2) == told


def test_the_spread_of_rounds():
    row = BenchRow(BenchCase("sd15", (64, 64), 1, "eager"), "todome:2", 20.0, (19.0, 21.5), 1.5, (1.4, 1.6), 0.5, 130.6)
    assert cells(row) == ["20.0 ± 1.2", "1.50x ± 0.10", "50.00", "0.50", "131"]
    assert cells(replace(row, ms_quartiles=(20.0, 20.0), speedup_quartiles=(1.5, 1.5)))[:2] == ["20.0", "1.50x"]
