"""`todome bench`: from words to tables; how it goes on, and what it refuses."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import UNet2DConditionModel

from todome.tools.commands.bench import show
from todome.tools.measuring.speed import Bench, BenchCase, BenchRow, read_bench
from todome.tools.measuring.tables import BENCH, markdown

pytestmark = pytest.mark.usefixtures("small_sd15")
QUICK = ("--methods", "todome:2", "--rounds", 1, "--seconds", 0)
OUT = ("-o", "speed.json")
CASE = BenchCase("sd15", (64, 64), 1, "eager")
MEASURED = r"[\d.]+ (?:± [\d.]+ )?\s*\| [\d.]+x (?:± [\d.]+ )?\s*\| [\d.]+ +\| [\d.]+ +\|"  # one round has no spread


def told(result: Any) -> str:
    """What a run without mishap prints; that the machine of the tests drifted meanwhile is none."""
    assert result.exit_code == 0, result.output
    assert not re.sub(r"Note: This machine became .*\n", "", result.stderr)
    return result.stdout


def sizes_in(text: str) -> list[str]:
    return re.findall(r"(\w+) pixels, \d at once", text)


def test_a_table_for_every_size_and_batch(run, folder):
    Path("tiny").symlink_to(folder)
    methods = ("dense", "todome:2", "tome")
    text = told(run("bench", "tiny", "--size", 32, "64x32", "--batch", 1, 2, *QUICK[2:], "--methods", *methods))
    cases = re.findall(r"tiny, (\w+) pixels, (\d) at once, eager", text)
    assert cases == [("32x32", "1"), ("32x32", "2"), ("64x32", "1"), ("64x32", "2")]
    for method in methods:
        assert len(re.findall(rf"\| {method} +\| {MEASURED}", text)) == 4
    assert not list(Path().glob("*.json"))


def test_what_was_measured_is_not_measured_again(run):
    first = told(run("bench", "sd15", "--size", 32, *QUICK, *OUT))
    assert first.endswith("Results: speed.json\n")
    again = told(run("bench", "sd15", "--size", 32, 64, *QUICK, *OUT))
    assert again.startswith(first.split("Dense is")[0])
    assert [case.size for case in read_bench(Path("speed.json")).cases()] == [(32, 32), (64, 64)]


def test_the_old_name_of_the_option_works_with_a_note(run):
    result = run("bench", "sd15", "--sizes", 32, "64x32", *QUICK)
    assert "--sizes is now --size" in result.stderr
    assert sizes_in(result.stdout) == ["32x32", "64x32"]


@pytest.mark.parametrize(("drift", "said"), [(0.15, "15% slower"), (-0.2, "20% faster"), (0.02, "")])
def test_a_machine_that_drifts(capsys, drift, said):
    show(Bench({}, 25, [BenchRow(CASE, "dense", 10.0, (9.0, 11.0), 1.0, (1.0, 1.0), 0.25, drift=drift)]))
    out, error = capsys.readouterr()
    assert out.count("| dense ") == 1
    assert bool(error) == bool(said)
    assert said in error


@pytest.mark.parametrize(("out", "kept"), [(OUT, "in speed.json"), ((), "with --out")])
def test_interrupted(run, monkeypatch, out, kept):
    own = UNet2DConditionModel.forward

    def interrupted(self: Any, sample: torch.Tensor, *rest: Any, **options: Any) -> Any:
        if sample.shape[-1] == 8:
            raise KeyboardInterrupt
        return own(self, sample, *rest, **options)

    monkeypatch.setattr(UNet2DConditionModel, "forward", interrupted)
    result = run("bench", "sd15", "--size", 32, 64, *QUICK, *out)
    assert (result.exit_code, result.stdout) == (130, "")
    assert kept in result.stderr
    if out:
        assert [case.size for case in read_bench(Path("speed.json")).cases()] == [(32, 32)]


def test_modes_are_measured_one_by_one(run, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    text = told(run("bench", "sd15", "--size", 32, "--compile", *QUICK))
    assert re.findall(r"1 at once, (\w+)", text) == ["eager", "compile"]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("sd15 --methods fast", 1, "method='fast' cannot be used."),
        ("sd15 --methods dense", 1, "methods=['dense'] cannot be used."),
        ("sd15 --size 100", 1, "Width 100 does not work: this model needs multiples of 16. Try 96 or 112."),
        ("sd15 --size 64 large", 2, "Invalid value for --size: 'large' is not a size"),
        ("sd15 -o none/speed.json", 1, "out='none/speed.json' "),
        ("nowhere", 1, "model='nowhere' cannot be used."),
        ("sd15 --cuda-graph", 1, "mode='cuda-graph' cannot be used."),
    ],
)
def test_what_cannot_be_measured(refused, monkeypatch, words, code, text):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert refused("bench", *words.split(), code=code).startswith(text)


def test_the_spread_of_rounds():
    row = BenchRow(CASE, "todome:2", 20.0, (19.0, 21.5), 1.5, (1.4, 1.6), 0.5, 130.6)
    once = replace(row, ms_quartiles=(20.0, 20.0), speedup_quartiles=(1.5, 1.5))
    *_, spread, alone = markdown(BENCH, [row, once]).splitlines()
    assert spread == "| todome:2 | 20.0 ± 1.2 | 1.50x ± 0.10 | 50.00 | 0.50        | 131 |"
    assert alone == "| todome:2 | 20.0       | 1.50x        | 50.00 | 0.50        | 131 |"
    full = BenchRow(CASE, "dense", None, note="out of memory: 20.00 GiB at once")
    assert markdown(BENCH, [full]).count("out of memory |") == 1
