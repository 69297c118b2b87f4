"""The benchmark scripts: on a machine without a GPU they run in small, and their results say where they were made."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import todome_flowers
import torch
from fresh import DRAWING, python_after
from small_evaluation import PLAN
from zoo import noise, small_unet, talking, text, tiny_pipeline

import todome
from todome import Plan
from todome.tools.measuring.evaluation import carry_out
from todome.tools.measuring.runs import write_json
from todome.tools.measuring.speed import read_bench

ROOT = Path(__file__).parents[2]
ABOUT = {"cpu", "python", "versions", "date"}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A script as a module, and nothing of it afterwards: their names are common ones."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def tried(script: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The results that a script writes, here: another process would import torch and diffusers again."""

    def tried(name: str, out: Path, *words: Any, **given: Any) -> Any:
        monkeypatch.setattr(sys, "argv", [f"benchmarks/{name}.py", "--out", str(out), *map(str, words)])
        script(name).main(**given)
        return json.loads(out.read_text())

    return tried


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The folder of a pipeline of random weights."""
    talking(tiny_pipeline(unet=small_unet())).save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def rows_by(found: Any, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in found["rows"]]


def test_what_a_reduction_costs_the_host(tried, tmp_path):
    found = tried("host", tmp_path / "host.json", "--layers", 2, "--rounds", 1, "--calls", 1)
    assert found["machine"].keys() >= ABOUT
    dense, *others = found["rows"]
    assert (dense["method"], dense["extra_us"]) == ("dense", 0)
    assert len(others) == 4


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("option", "methods"),
    [
        ("--attention=math", {"todome:2", "todo:2", "todome:2,2", "tome:0.5"}),
        ("--bounds", {"todome:2", "bare:2", "bound:8", "tomesd:0.5"}),
    ],
)
def test_the_speed_of_a_model(tiny, tmp_path, option, methods):
    """In another process: the script makes more methods known."""
    words = [option, "--modes", "eager", "--sizes", 64, "--seconds", 0, "--models", tiny]
    command = [python_after(DRAWING), "benchmarks/speed.py", *map(str, words), "--out", tmp_path / "speed.json"]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, check=True)
    found = read_bench(tmp_path / "speed.json")
    assert found.about.keys() >= ABOUT
    (case,) = found.cases()
    assert case.model.partition(", ")[::2] == (str(tiny), option.partition("=")[2])
    assert {row.method for row in found.rows if row.ms} >= methods


def test_a_bare_slice_draws_what_todo_draws(script):
    """So it is the same reduction at the least cost."""
    unet, inputs = small_unet(), (noise(1, 4, 16, 16), torch.tensor([500]), text(1))
    with torch.no_grad():
        dense = unet(*inputs).sample
        with todome.apply(unet, todome.Downsample(2, phase="fixed")):
            reduced = unet(*inputs).sample
        with script("speed").BareSlice(2).on(unet):
            bare = unet(*inputs).sample
        assert unet(*inputs).sample.equal(dense)
    assert bare.allclose(reduced, atol=1e-5)
    assert not bare.allclose(dense, atol=1e-3)


@pytest.mark.thorough
def test_how_close_pictures_are_under_several_conditions(script, tried, tmp_path):
    condition = script("fidelity").Condition
    small = [condition(64, "dpm++", 2, ["todome:2", "dense:1"]), condition(64, "ddim", 2, ["todo:2"])]
    out = tmp_path / "fidelity.json"
    found = tried("fidelity", out, "--work", tmp_path / "runs", "--pictures", 2, conditions=small)
    assert found["about"]["weights"] == todome_flowers.fingerprint()
    assert rows_by(found, "scheduler", "method", "taken") == [
        ("dpm++", "dense", 2),
        ("dpm++", "dither 2", 2),
        ("dpm++", "dense", 1),
        ("ddim", "dense", 2),
        ("ddim", "fixed 2 (ToDo)", 2),
    ]
    told = [[cell for cell in row.values() if "x)" in cell] for row in script("tables").conditions(out)]
    assert [len(cells) for cells in told] == [1, 1]


def test_the_tables_of_the_papers_are_made_from_summaries(script, tmp_path, flowers, lpips):
    run = carry_out(PLAN, tmp_path / "run", pipe=flowers, lpips=lpips)
    write_json(tmp_path / "found.json", {"todo-32": script("ancestors").summary(run), "tome": {}})
    lines = script("tables").todo(tmp_path / "found.json").splitlines()
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["dense", "todome 2"]


@pytest.mark.thorough
def test_plans_against_uniform_factors_and_fewer_steps(tried, tmp_path):
    words = ["--work", tmp_path / "work", "--sizes", 64, "--budgets", 25, "--steps", 2, "--patience", 0]
    words += ["--calibration", 1, "--held-out", 2, "--batch", 2, "--plans", tmp_path / "plans"]
    few: dict[str, Any] = {"uniform": ((2,), (4,)), "controls": (13,)}
    found = tried("tuning", tmp_path / "tuning.json", *words, **few)
    assert found["about"].keys() >= {*ABOUT, "weights"}
    assert rows_by(found, "kind", "name") == [
        ("plan", "25 dB"),
        ("uniform", "2"),
        ("uniform", "4"),
        ("steps", "1 steps"),
    ]
    assert all(row["speedup"] > 0 for row in found["rows"])
    measured = (tmp_path / "work/64/measurements.jsonl").read_text()
    assert tried("tuning", tmp_path / "tuning.json", *words, **few)["rows"] == found["rows"]  # it goes on
    assert (tmp_path / "work/64/measurements.jsonl").read_text() == measured
    for plan in (tmp_path / "plans").glob("*.json"):
        assert Plan.load(plan).conditions["fingerprint"]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:This plan was measured on pictures of another size")
def test_shipped_plans_on_other_pictures(tried, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    options = ["--pictures", 1, "--size", 64, "--steps", 2, "--device", "cpu"]
    found = tried("other_pictures", tmp_path / "out.json", "--work", tmp_path / "work", *options)
    assert found["about"].keys() >= ABOUT
    assert found["about"]["weights"] == todome_flowers.fingerprint()
    assert [row["method"].rpartition("/")[2] for row in found["rows"]] == ["256-45.json", "256-45.json", "todome:2"]
    assert found["rows"][2]["psnr"] < 60 < found["rows"][0]["psnr"]  # so small that plans keep all keys
    assert ["chosen_with" in row for row in found["rows"]] == [True, True, False]


@pytest.mark.thorough
def test_what_each_layer_bears(script, tried, tmp_path):
    layers, out = script("layers"), tmp_path / "layers.json"
    words = ["--work", tmp_path / "work", "--levels", 2, "--factors", 2, 4, "--steps", 2, "--pictures", 1]
    sizes = {layers.EMBEDDED: (64,)}
    found = tried("layers", out, *words, sizes=sizes)
    assert found["about"]["weights"] == todome_flowers.fingerprint()
    assert found["models"][layers.EMBEDDED]["layers"]["block_out_channels"]
    rows = {(row["layer"], row["factor"]): row["db"] for row in found["rows"]}
    names = {layer for layer, _ in rows}
    assert len(names) > 4
    assert sum(rows[name, 2] > rows[name, 4] for name in names) > len(names) / 2
    measured = (tmp_path / "work/measurements.jsonl").read_text()
    assert tried("layers", out, *words, sizes=sizes) == found
    assert (tmp_path / "work/measurements.jsonl").read_text() == measured
