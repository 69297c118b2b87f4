"""`todome tune`, and what takes the plan that it writes: generate, eval, bench."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import UNet2DConditionModel
from small_tuning import PROMPTS
from typer.testing import CliRunner, Result
from zoo import plan_of, planned

from todome import Plan
from todome.hooks.attaching import patches_on
from todome.tools.commands import app
from todome.tools.commands.tune import show
from todome.tools.generate import settings_of
from todome.tools.measuring.methods import method_named
from todome.tools.measuring.runs import file_name
from todome.tools.measuring.speed import bench
from todome.tools.pipelines import open_pipeline

SMALL = ["--size", "32x32", "--steps", "4", "--calibration", "1", "--held-out", "2", "--prompts", "prompts.txt"]


@pytest.fixture
def run(
    model: Path, tuned: tuple[Path, Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Runs `todome` in a folder with a model, the measurements of a finished tuning and its plan, old.json."""
    monkeypatch.chdir(tmp_path)
    Path("prompts.txt").write_text("\n".join(PROMPTS))
    Path("model").symlink_to(model)
    shutil.copytree(tuned[0], "plan.tune")
    tuned[1].save("old.json")
    return lambda *words: CliRunner().invoke(app, list(map(str, words)), prog_name="todome")


def tune(run: Callable[..., Result], *words: Any) -> Result:
    return run("tune", "model", *SMALL, "-o", "plan.json", *words)


def test_a_plan_and_what_is_said(run):
    result = tune(run, "--keep", 30)
    assert result.exit_code == 0, result.output
    plan = Plan.load("plan.json")
    assert plan.evidence["verdict"] in result.stdout
    assert "up.1.1: factor " in result.stdout
    assert not list(Path().glob("*.part"))


@pytest.mark.parametrize(
    ("factor", "control", "named"),
    [(2, 20.0, "--plan plan.json"), (2, 90.0, "--dense --steps 3"), (1, None, None)],
)
def test_what_gains_nothing_is_not_recommended(tuned, capsys, factor, control, named):
    layers = {name: planned(factor, layer.tokens, layer.width) for name, layer in tuned[1].layers.items()}
    evidence = {**tuned[1].evidence, "control": control and {"steps": 3, "psnr": control}}
    show(plan_of(layers, evidence=evidence), Path("plan.json"), "model")
    said = capsys.readouterr().out
    assert evidence["verdict"] in said
    assert [words for words in ("--plan plan.json", "--dense --steps 3") if words in said] == ([named] if named else [])


def test_an_interrupted_command_says_how_to_go_on(run, monkeypatch):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(UNet2DConditionModel, "forward", interrupted)
    result = tune(run, "--keep", 30, "--seed", 9)
    assert result.exit_code == 130
    assert "plan.tune" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--keep", 30, "--faster", 2], "Say how close, or how fast, and not both."),
        (["--keep", 30, "--prompts", "none.txt"], "prompts='none.txt' cannot be used"),
        (["--keep", 30, "-o", "plan.txt"], "does not end in .json"),
        (["--keep", 30, "-o", "old.json"], "out='old.json' exists already"),
    ],
)
def test_bad_input(run, words, said):
    result = tune(run, *words)
    assert result.exit_code in (1, 2)
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert not Path("plan.json").exists()


def test_generate_with_a_plan_is_what_apply_makes(run):
    result = run("generate", "a rose", "--model", "model", "--plan", "old.json", "-o", "rose.png")
    assert result.exit_code == 0, result.output
    assert "Plan: " in result.stdout
    made = settings_of(Path("rose.png"))
    assert made.reduction == Plan.load("old.json")
    assert (made.size, made.steps) == ((32, 32), 4)
    again = run("generate", "--like", "rose.png", "--model", "model", "-o", "again.png")
    assert again.exit_code == 0, again.output
    assert settings_of(Path("again.png")).reduction == made.reduction


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plan", "prompts.txt"], "prompts.txt is not a plan: it cannot be read"),
        (["--plan", "other.json"], "the channels of up.1.0 are (99,) in the plan and (8, 16) in the model"),
    ],
)
def test_generate_refuses(run, words, said):
    found = json.loads(Path("old.json").read_text())
    found["levers"]["layers"]["layers"]["up.1.0"]["width"] = [99]
    Path("other.json").write_text(json.dumps(found))
    result = run("generate", "a rose", "--model", "model", *words, "-o", "rose.png")
    assert result.exit_code in (1, 2)
    assert said in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.usefixtures("run")
def test_a_method_with_a_plan():
    method = method_named("todome:plan=old.json")
    assert method.loaded().reduction == Plan.load("old.json")
    assert file_name("todome:plan=a/b.json") == "todome_plan_a-b.json"
    with pytest.raises(ValueError, match="A plan has all settings: leave others out"):
        method_named("todome:plan=old.json,stop=0.5")
    with pytest.raises(ValueError, match=r"no\.json is not a plan"):
        method_named("todome:plan=no.json").loaded()


@torch.no_grad()
@pytest.mark.usefixtures("run")
def test_parts_of_a_plan_are_timed_apart_and_again_when_it_has_changed():
    pipe, old = open_pipeline("model", "cpu"), Plan.load("old.json").layers
    pipe.set_progress_bar_config(disable=True)
    flat = {name: planned(2, layer.tokens, layer.width) for name, layer in old.items()}
    _, tokens, width = old["up.1.0"]
    parts = [plan_of({**flat, "up.1.0": planned(factor, tokens, width)}) for factor in (4, 1.5)]
    plan_of({**flat, "up.1.0": planned(4, tokens, width, later=1.5, switch=0.25)}).save("falls.json")
    with method_named("todome:plan=falls.json").on(pipe.unet) as kinds:
        assert [kind.share for kind in kinds] == [0.25, 0.75]
        assert [kind.begin().levers for kind in kinds] == [(part,) for part in parts]
    assert not patches_on(pipe.unet)

    def timed() -> bool:
        before = Path("bench.json").read_text() if Path("bench.json").exists() else ""
        rows = bench(pipe, [(32, 32)], ["todome:plan=falls.json"], rounds=1, seconds=0, out="bench.json").rows
        assert [row.method for row in rows] == ["dense", "todome:plan=falls.json"]
        return Path("bench.json").read_text() != before

    assert timed()
    assert not timed()
    changed("falls.json")
    assert timed()


def evaluate(run: Callable[..., Result], *words: Any) -> Result:
    given = ["--methods", "todome:plan=old.json", "--size", 32, "--steps", 4, "--prompts", "prompts.txt"]
    return run("eval", "model", *given, "-o", "run", *words)


def changed(file: str) -> None:
    """Writes a plan with other factors into its file."""
    plan = Plan.load(file)
    plan_of({name: planned(1.5, layer.tokens, layer.width) for name, layer in plan.layers.items()}).save(file)


def test_eval_draws_a_plan_and_goes_on_with_the_same_alone(run):
    result = evaluate(run, "--pictures", 1)
    assert result.exit_code == 0, result.output
    assert "todome plan=old.json" in result.stdout
    (picture,) = Path("run/pictures/32x32/todome_plan_old.json").glob("*.png")
    plan = Plan.load("old.json")
    assert settings_of(picture).reduction == plan
    changed("old.json")
    refused = evaluate(run, "--pictures", 2)
    assert refused.exit_code == 1
    assert "the plan of todome:plan=old.json='digest " in refused.stderr
    assert len(list(picture.parent.glob("*.png"))) == 1
    plan.save("old.json")
    assert evaluate(run, "--pictures", 2).exit_code == 0
    Path("old.json").unlink()
    assert run("report", "run").exit_code == 0  # what was drawn can be shown without the plan
