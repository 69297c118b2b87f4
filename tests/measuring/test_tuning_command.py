"""`todome tune`, and what takes the plan that it writes: generate, eval, bench."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_tuning import PROMPTS, counting
from typer.testing import CliRunner, Result

from todome import Plan
from todome.hooks.modules import clocks_on
from todome.tools.commands import app
from todome.tools.generate import settings_of
from todome.tools.measuring.methods import method_named
from todome.tools.measuring.runs import file_name
from todome.tools.measuring.speed import bench

SMALL = ["--size", "32x32", "--steps", "4", "--calibration", "1", "--held-out", "2", "--prompts", "prompts.txt"]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What every command opens."""
    pipe = counting(monkeypatch)
    for place in ("tuning.tuner", "pipelines"):
        monkeypatch.setattr(f"todome.tools.{place}.open_pipeline", lambda *_, **__: pipe)
    return pipe


@pytest.fixture
def run(pipe: Any, tuned: tuple[Path, Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs `todome` in a folder with the measurements of a finished tuning and its plan, old.json."""
    monkeypatch.chdir(tmp_path)
    Path("prompts.txt").write_text("\n".join(PROMPTS))
    shutil.copytree(tuned[0], "plan.tune")
    tuned[1].save("old.json")
    return lambda *words: CliRunner().invoke(app, list(map(str, words)), prog_name="todome")


def tune(run: Callable[..., Result], *words: Any) -> Result:
    return run("tune", "folder/model", *SMALL, "-o", "plan.json", *words)


def test_a_plan_and_what_is_said(run):
    result = tune(run, "--keep", 30)
    assert result.exit_code == 0, result.output
    plan = Plan.load("plan.json")
    assert plan.measured["verdict"] in result.stdout
    assert "up.1.1: factor " in result.stdout
    assert result.stdout.endswith('Plan: plan.json\nNext: todome generate "..." --plan plan.json -o picture.png\n')
    assert not list(Path().glob("*.part"))


def test_an_interrupted_command_says_how_to_go_on(run, monkeypatch):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("todome.tools.tuning.tuner.Tuner.run", interrupted)
    result = tune(run, "--keep", 30)
    assert result.exit_code == 130
    assert result.stderr == "Interrupted. What was measured is in plan.tune: the same command goes on.\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Say how close, or how fast, and not both."),
        (["--keep", 30, "--faster", 2], "Say how close, or how fast, and not both."),
        (["--keep", 300], "keep=300.0 cannot be used"),
        (["--keep", 30, "--prompts", "none.txt"], "prompts='none.txt' cannot be used"),
        (["--keep", 30, "-o", "plan.txt"], "does not end in .json, which todome generate --plan reads"),
        (["--keep", 30, "-o", "old.json"], "out='old.json' exists already"),
        (["--faster", 15], "faster=15.0 cannot be used. Allowed: up to about 2.76"),
    ],
)
def test_bad_input(run, words, said):
    result = tune(run, *words)
    assert result.exit_code in (1, 2)
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert not Path("plan.json").exists()


def test_a_full_disk_is_said_and_nothing_is_lost(run, monkeypatch):
    before = Path("plan.tune/measurements.jsonl").read_text()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "plan.tune/measurements.jsonl")

    monkeypatch.setattr("todome.tools.tuning.records.Records._append", full)
    result = tune(run, "--keep", 30, "--seed", 9)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: The disk is full.")
    assert Path("plan.tune/measurements.jsonl").read_text() == before


def test_generate_with_a_plan_is_what_apply_makes(run, pipe):
    result = run("generate", "a rose", "--plan", "old.json", "-o", "rose.png")
    assert result.exit_code == 0, result.output
    assert "Plan: " in result.stdout
    made = settings_of(Path("rose.png"))
    assert made.reduction == Plan.load("old.json")
    assert (made.size, made.steps) == ((32, 32), 4)
    again = run("generate", "--like", "rose.png", "-o", "again.png")
    assert again.exit_code == 0, again.output
    assert settings_of(Path("again.png")).reduction == made.reduction


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plan", "old.json", "--factor", 2], "--factor and --plan: They exclude each other: use one of them."),
        (["--plan", "old.json", "--phase", "fixed"], "--phase: It needs --factor."),
        (["--plan", "none.json"], "none.json is not a plan: it cannot be read"),
        (["--plan", "prompts.txt"], "prompts.txt is not a plan: it cannot be read"),
    ],
)
def test_generate_refuses(run, words, said):
    result = run("generate", "a rose", *words, "-o", "rose.png")
    assert result.exit_code in (1, 2)
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_a_plan_of_another_model_is_refused(run):
    found = json.loads(Path("old.json").read_text())
    found["layers"]["up.1.0"]["width"] = [99]
    Path("other.json").write_text(json.dumps(found))
    result = run("generate", "a rose", "--plan", "other.json", "-o", "rose.png")
    assert result.exit_code == 1
    assert "This plan is for another model" in result.stderr
    assert "the channels of up.1.0 are (99,) in the plan and (8, 16) in the model" in result.stderr


def test_a_method_with_a_plan(run, pipe):
    method = method_named("todome:plan=old.json")
    assert method.loaded().reduction == Plan.load("old.json")
    assert file_name("todome:plan=a/b.json") == "todome_plan_a-b.json"
    with pytest.raises(ValueError, match="A plan has all settings: leave others out"):
        method_named("todome:plan=old.json,stop=0.5")
    with pytest.raises(ValueError, match=r"no\.json is not a plan"):
        method_named("todome:plan=no.json").loaded()


@torch.no_grad()
def test_parts_of_a_plan_are_timed_apart(run, pipe):
    plan = Plan.load("old.json")
    plan = Plan({**plan.layers, "up.1.0": plan.layers["up.1.0"]._replace(factor=4, later=1)}, switch=0.25)
    plan.save("falls.json")
    method = method_named("todome:plan=falls.json")
    with method.on(pipe.unet) as kinds:
        assert [kind.share for kind in kinds] == [0.25, 0.75]
        assert [kind.begin().reduction for kind in kinds] == [plan.part(False), plan.part(True)]
    assert not clocks_on(pipe.unet)
    found = bench(pipe, [(32, 32)], ["todome:plan=falls.json"], rounds=1, seconds=0)
    assert [row.method for row in found.rows] == ["dense", "todome:plan=falls.json"]


def evaluate(run: Callable[..., Result], *words: Any) -> Result:
    given = ["--methods", "todome:plan=old.json", "--size", 32, "--steps", 4, "--prompts", "prompts.txt"]
    return run("eval", "folder/model", *given, "-o", "run", *words)


def changed(file: str) -> None:
    """Writes a plan with other factors into its file."""
    plan = Plan.load(file)
    Plan({name: layer._replace(factor=1.5, later=1.5) for name, layer in plan.layers.items()}).save(file)


def test_eval_draws_a_plan(run):
    result = evaluate(run, "--pictures", 1)
    assert result.exit_code == 0, result.output
    assert "todome plan=old.json" in result.stdout
    (picture,) = Path("run/pictures/32x32/todome_plan_old.json").glob("*.png")
    assert settings_of(picture).reduction == Plan.load("old.json")
    Path("old.json").unlink()
    assert run("report", "run").exit_code == 0  # what was drawn can be shown without the plan


def test_eval_goes_on_with_the_same_plan_alone(run):
    assert evaluate(run, "--pictures", 1).exit_code == 0
    plan = Plan.load("old.json")
    plan.save("old.json")
    assert evaluate(run, "--pictures", 2).exit_code == 0
    changed("old.json")
    refused = evaluate(run, "--pictures", 3)
    assert refused.exit_code == 1
    assert "the plan of todome:plan=old.json='digest " in refused.stderr
    assert "Evaluate into another folder" in refused.stderr
    assert len(list(Path("run/pictures/32x32/todome_plan_old.json").glob("*.png"))) == 2
    plan.save("old.json")
    assert evaluate(run, "--pictures", 3).exit_code == 0


@torch.no_grad()
def test_bench_times_a_plan_that_has_changed_again(run, pipe, monkeypatch):
    def timed() -> bool:
        before = Path("bench.json").read_text() if Path("bench.json").exists() else ""
        bench(pipe, [(32, 32)], ["todome:plan=old.json"], rounds=1, seconds=0, out="bench.json")
        return Path("bench.json").read_text() != before

    assert timed()
    assert not timed()
    changed("old.json")
    assert timed()
