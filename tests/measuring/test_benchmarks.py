"""The benchmark scripts: on a machine without a GPU they run in small, and their results say where they were made."""

import argparse
import functools
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import todome_flowers
from fresh import DRAWING, python_after
from small_evaluation import PLAN
from zoo.inputs import animation_inputs, video_inputs
from zoo.models import motion_unet, video_unet

from todome import Plan
from todome.tools.measuring.drawing import PictureMaker
from todome.tools.measuring.peers import Tomesd
from todome.tools.measuring.runs import write_json
from todome.tools.measuring.speed import BenchCase, BenchRow, read_bench
from todome.tools.measuring.subjects import ARCHITECTURES

ROOT = Path(__file__).parents[2]
ABOUT = {"cpu", "python", "versions", "date"}


def tried(script: str, *options: Any) -> str:
    """What a script prints, as people start it."""
    command = [python_after(DRAWING), f"benchmarks/{script}", *map(str, options)]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout


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
def tried_here(script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a script prints, here: another process would import torch and diffusers again."""
    for name, shape in ARCHITECTURES.items():  # which --small changes
        monkeypatch.setitem(ARCHITECTURES, name, dict(shape))

    def tried_here(name: str, *options: Any) -> str:
        monkeypatch.setattr(sys, "argv", [f"benchmarks/{name}.py", *map(str, options)])
        script(name).main()
        return capsys.readouterr().out

    return tried_here


def test_what_a_reduction_costs_the_host(tmp_path):
    out = tmp_path / "host.json"
    tried("host.py", "--layers", 2, "--rounds", 1, "--calls", 1, "--out", out)
    found = json.loads(out.read_text())
    assert found["machine"].keys() >= ABOUT
    assert found["command"] == "benchmarks/host.py --layers 2 --rounds 1 --calls 1"
    dense, *others = found["rows"]
    assert (dense["method"], dense["extra_us"]) == ("dense", 0)
    assert [row["method"] for row in others] == [
        "todome dithered",
        "todome fixed (ToDo)",
        "todome Merge 0.5",
        "tomesd 0.5",
    ]


def test_the_speed_of_video_and_of_attention_without_a_flash_kernel(tried_here, tmp_path):
    out = tmp_path / "speed.json"
    small = ["--small", "--modes", "eager", "--sizes", 64, "--seconds", 0, "--out", out]
    tried_here("speed", *small, "--models", "animatediff", "svd")
    said = tried_here("speed", *small, "--models", "sd15", "--attention", "math")
    assert said.startswith("sd15, math 64x64, 1 at once, eager: ")
    found = read_bench(out)
    assert found.about.keys() >= ABOUT
    own = ["dense", "todome:2", "todo:2", "todome:2,2", "tome:0.5"]
    assert {case.model: found.methods(case)[: len(own)] for case in found.cases()} == dict.fromkeys(
        ["animatediff", "svd", "sd15, math"], own
    )
    assert all(row.ms for row in found.rows)
    table = tried_here("speed_tables", out).splitlines()
    assert [line.split(" | ")[0] for line in table[2:5]] == [
        "| AnimateDiff, 64, 2",
        "| SVD, 64, 2",
        "| SD 1.5, math, 64, 2",
    ]


@pytest.mark.parametrize(("model", "inputs"), [(motion_unet, animation_inputs), (video_unet, video_inputs)])
def test_tomesd_does_not_run_on_video(model, inputs):
    """It takes the frames for the height. That is why the tables of video lack it."""
    unet, given = model(), inputs()
    first = [given.pop(name) for name in ("sample", "timestep", "encoder_hidden_states")]
    with pytest.raises(ZeroDivisionError), Tomesd(0.5).on(unet):
        unet(*first, **given)


def test_tables_show_what_ran_out_of_memory_and_what_was_compiled(tried_here, tmp_path):
    def row(model: str, method: str, mode: Any, ms: float | None = 4.0, **more: Any) -> BenchRow:
        return BenchRow(BenchCase(model, (2048, 2048), 1, mode), method, ms, **more)

    full = {"ms": None, "note": "out of memory: 256.00 GiB at once"}
    rows = [
        row("sd15, math", "dense", "cuda-graph", **full),
        row("sd15, math", "todome:4", "cuda-graph", mib=2048.4),
        row("sdxl", "dense", "compile-cuda-graph", 8.0, graphs=1),
        row("sdxl", "todome:4", "compile-cuda-graph", speedup=2.0, graphs=1),
    ]
    about = {"about": {}, "steps": 25, "rows": [{**vars(one), "case": vars(one.case)} for one in rows]}
    write_json(tmp_path / "speed.json", about)
    speed, memory, compiled = tried_here("speed_tables", tmp_path / "speed.json").strip().split("\n\n")
    assert speed.splitlines()[2] == "| SD 1.5, math, 2048, 4 | out of memory | 4.0 |"
    assert memory.splitlines()[2] == "| SD 1.5, math, 2048 | out of memory: 256.00 GiB at once | 2048 |"
    assert compiled.splitlines()[2] == "| SDXL, 2048, 4 | 8.0 | 4.0 (2.00x) | 1 and 1 |"


def test_closeness_is_written_and_goes_on(script, monkeypatch, tmp_path):
    fidelity = script("fidelity")
    small = [fidelity.Condition(64, "dpm++", 2, ["todome:2", "dense:1"]), fidelity.Condition(64, "ddim", 2, ["todo:2"])]
    monkeypatch.setattr(fidelity, "CONDITIONS", small)
    out = tmp_path / "fidelity.json"
    words = ["fidelity.py", "--work", str(tmp_path / "runs"), "--out", str(out), "--pictures", "2", "--device", "cpu"]
    for only in (["--only", "64-ddim-2"], ["--only", "64-dpm++-2"]):
        monkeypatch.setattr(sys, "argv", [*words, *only])
        fidelity.main()
    found = json.loads(out.read_text())
    assert found["about"]["weights"] == todome_flowers.fingerprint()
    assert [(row["scheduler"], row["method"], row["taken"]) for row in found["rows"]] == [
        ("dpm++", "dense", 2),
        ("dpm++", "dither 2", 2),
        ("dpm++", "dense", 1),
        ("ddim", "dense", 2),
        ("ddim", "fixed 2 (ToDo)", 2),
    ]
    assert fidelity.results_so_far(out) == found
    out.write_text(out.read_text().replace(todome_flowers.fingerprint(), "0123456789abcdef"))
    assert fidelity.results_so_far(out) == {"rows": []}
    table = script("fidelity_tables").conditions_table(found["rows"]).splitlines()
    assert [line.count(" dB") + line.count("x)") for line in table[2:]] == [1, 1]


def test_the_tables_of_the_papers_have_todome_at_two_factors_and_the_control_everywhere(script):
    options = argparse.Namespace(prompts=None, pictures=2048, real=None, todo=64)
    plans = script("ancestors").plans(options)
    merged = [f"tome:0.{tenth}" for tenth in (6, 5, 4, 3, 2, 1)]
    assert plans["tome"]["methods"] == ["todome:2", "todome:4", *merged]
    controls = {name: [m for m in plan["methods"] if m.startswith("dense:")] for name, plan in plans.items()}
    assert {name: len(found) for name, found in controls.items()} == {
        "tome": 0,
        "todo-512": 3,
        "todo-768": 3,
        "todo-1024": 3,
    }


def test_a_table_that_is_stopped_has_the_rows_that_were_done(script, monkeypatch, tmp_path, flowers, lpips):
    ancestors, own = script("ancestors"), PictureMaker.draw_batch

    def draw_batch(self: PictureMaker, size: Any, method: Any, numbers: range) -> Any:
        if method.name == "todome:2":
            raise KeyboardInterrupt
        return own(self, size, method, numbers)

    with monkeypatch.context() as patch:
        patch.setattr(PictureMaker, "draw_batch", draw_batch)
        run, stopped = ancestors.carry_out_until_stopped(PLAN, tmp_path, pipe=flowers, lpips=lpips)
    assert (stopped, [row["method"] for row in ancestors.summary(run)["rows"]]) == (True, ["dense"])
    run, stopped = ancestors.carry_out_until_stopped(PLAN, tmp_path, pipe=flowers, lpips=lpips)
    assert (stopped, [row.method for row in run.rows]) == (False, ["dense", "todome:2"])


def test_plans_against_uniform_factors_and_fewer_steps(script, monkeypatch, tmp_path):
    tuning = script("tuning")
    monkeypatch.setattr(tuning, "UNIFORM", ((2,), (4,)))
    monkeypatch.setattr(tuning, "CONTROLS", (13,))
    monkeypatch.setattr("todome.tools.tuning.sensitivity.FACTORS", (2,))
    monkeypatch.setattr("todome.tools.tuning.layer_times.FACTORS", (2,))
    monkeypatch.setattr(tuning, "Options", functools.partial(tuning.Options, rounds=2))
    out = tmp_path / "tuning.json"
    words = ["tuning.py", "--work", tmp_path / "work", "--out", out, "--sizes", 64, "--budgets", 25, "--steps", 2]
    words += ["--calibration", 1, "--held-out", 2, "--batch", 2, "--patience", 0, "--device", "cpu"]
    words += ["--plans", tmp_path / "plans"]
    monkeypatch.setattr(sys, "argv", [*map(str, words)])
    tuning.main()
    found = json.loads(out.read_text())
    assert found["about"].keys() >= {*ABOUT, "weights"}
    assert found["about"]["weights"] == todome_flowers.fingerprint()
    assert [(row["kind"], row["name"]) for row in found["rows"]] == [
        ("plan", "25 dB"),
        ("uniform", "2"),
        ("uniform", "4"),
        ("steps", "1 steps"),
    ]
    assert all(row["speedup"] > 0 for row in found["rows"])
    measured = (tmp_path / "work/64/measurements.jsonl").read_text()
    tuning.main()  # goes on: nothing is measured twice
    assert (tmp_path / "work/64/measurements.jsonl").read_text() == measured
    for plan in (tmp_path / "plans").glob("*.json"):
        assert Plan.load(plan).measured["fingerprint"]


def test_plans_with_the_times_of_one_machine_and_the_pictures_of_another(script, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("todome.tools.tuning.sensitivity.FACTORS", (2,))
    monkeypatch.setattr("todome.tools.tuning.layer_times.FACTORS", (2,))
    tuning = script("tuning")
    monkeypatch.setattr(tuning, "Options", functools.partial(tuning.Options, rounds=2, worth=-1.0))
    words = ["--work", tmp_path, "--plans", tmp_path / "plans", "--sizes", 64, "--keep", 15, "--steps", 3]
    words += ["--calibration", 1, "--held-out", 2, "--batch", 2, "--patience", 0, "--device", "cpu"]
    plans = script("cpu_plans")
    for part in ("time", "draw", "finish"):
        monkeypatch.setattr(sys, "argv", ["cpu_plans.py", part, *map(str, words)])
        plans.main()
    plan = Plan.load(tmp_path / "plans/64-15.json")
    assert plan.measured["psnr"] >= 15
    assert plan.measured["verdict"] in capsys.readouterr().out
    assert plan.measured["drawn"]["versions"]["todome"]
    assert plan.measured.keys() >= {*ABOUT, "speedup", "share", "fingerprint", "weights", "goal"}
    assert plan.layers == Plan.load(tmp_path / "drawn-64-15.json").layers


def test_the_tables_and_the_figure_of_plans(script, tmp_path):
    def row(kind: str, name: str, speedup: float, psnr: float, **more: Any) -> dict[str, Any]:
        return {"px": 256, "kind": kind, "name": name, "speedup": speedup, "psnr": psnr, **more}

    rows = [
        row("plan", "40 dB", 1.25, 40.4, keep=40, pictures=4),
        row("plan", "50 dB", 1.1, 50.2, keep=50, pictures=4),
        row("uniform", "2", 1.2, 45.0),
        row("uniform", "4", 1.3, 36.0),
        row("steps", "20 steps", 1.25, 35.0),
    ]
    out = tmp_path / "tuning.json"
    write_json(out, {"rows": rows})
    drawn_plans(tmp_path / "tuning" / "256")
    first, second = tried("tuning_tables.py", out).split("\n\n")
    assert first.splitlines()[2:] == [
        "| 256, 40 dB | 40.4 dB, 1.25x | 4: 36.0 dB, 1.30x | 2: 45.0 dB, 1.20x | 20 steps: 35.0 dB, 1.25x |",
        "| 256, 50 dB | 50.2 dB, 1.10x | 2: 45.0 dB, 1.20x | none | 20 steps: 35.0 dB, 1.25x |",
    ]
    low, high = second.splitlines()[2:]
    assert high == "| 256, 50 dB | 2 | 51.0 | 51.0 | 100% |"
    found = re.fullmatch(r"\| 256, 40 dB \| 2 \| 41\.0 \| 41\.0 \| (\d+)% \|", low)
    assert found is not None
    assert 78 < int(found[1]) < 88  # a sixth of the halves choose the plan that is fast and close by luck
    tried("../docs/figures/tuning.py", tmp_path / "tuning.svg", out)
    drawn = (tmp_path / "tuning.svg").read_text()
    assert drawn.count("plans of todome tune") >= 1
    assert "256 px" in drawn


def drawn_plans(folder: Path) -> None:
    """Measurements of three plans: a slow one, a fast one, and one that is close on half of the pictures alone."""
    lines = []
    for factor, speedup, close in [(1.5, 1.1, [51] * 4), (2, 1.25, [41] * 4), (4, 1.3, [41, 41, 20, 20])]:
        errors, choices = [10 ** (-psnr / 10) for psnr in close], {"up.1.0": [factor, factor]}
        lines.append({"what": {"picture errors": choices}, "found": errors})
        lines.append({"what": {"speed-up": choices}, "found": {"speedup": speedup, "noise": 0.0}})
    folder.mkdir(parents=True)
    (folder / "measurements.jsonl").write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.filterwarnings("ignore:This plan was measured on pictures of another size")
def test_shipped_plans_on_other_pictures(tried_here, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    options = ["--pictures", 1, "--size", 64, "--steps", 2, "--device", "cpu"]
    shown = tried_here("other_pictures", "--work", tmp_path / "work", "--out", tmp_path / "out.json", *options)
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["about"].keys() >= ABOUT
    assert found["about"]["weights"] == todome_flowers.fingerprint()
    assert [row["method"].rpartition("/")[2] for row in found["rows"]] == ["256-45.json", "256-45.json", "todome:2"]
    assert found["rows"][2]["psnr"] < 60 < found["rows"][0]["psnr"]  # so small that plans keep all keys
    assert ["chosen_with" in row for row in found["rows"]] == [True, True, False]
    assert str(found["rows"][0]) in shown


def test_what_each_layer_bears(script, monkeypatch, tmp_path):
    layers, out = script("layers"), tmp_path / "layers.json"
    words = ["layers.py", "--work", tmp_path / "work", "--out", out, "--sizes", 64, "--levels", 3, "--factors", 2]
    words += ["--steps", 2, "--pictures", 1, "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [*map(str, words)])
    layers.main()
    found = json.loads(out.read_text())
    assert found["about"]["weights"] == todome_flowers.fingerprint()
    assert found["models"][layers.EMBEDDED]["layers"]["block_out_channels"]
    rows = {(row["which"], row["layer"]): row["db"] for row in found["rows"]}
    names = {layer for which, layer in rows if which == "alone"}
    assert rows.keys() == {
        ("all", ""),
        ("gentle", ""),
        *((which, name) for which in ("alone", "without") for name in names),
    }
    assert min(rows.values()) < max(rows.values())
    assert rows["all", ""] < max(rows["alone", name] for name in names)
    assert rows["gentle", ""] > rows["all", ""]  # its first layers are dense at half of factor 2
    measured = (tmp_path / "work/measurements.jsonl").read_text()
    layers.main()
    assert (tmp_path / "work/measurements.jsonl").read_text() == measured
    assert script("layers_tables").gentle_table(found["rows"]).count(" dB") == 2
