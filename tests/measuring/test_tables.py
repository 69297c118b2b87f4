"""Tables: their exact text, and what the papers' ones measure."""

from pathlib import Path

import pytest

from todome.levers.downsample import Downsample
from todome.levers.merge import Merge
from todome.tools.measuring.methods import method_named
from todome.tools.measuring.runs import Closeness, Evaluation, EvaluationPlan, EvaluationRow
from todome.tools.measuring.tables import TABLES, closeness_table, todo_table, tome_table

SIZE = (512, 512)


def run_of(*rows: EvaluationRow) -> Evaluation:
    return Evaluation(EvaluationPlan(["a"], ["dense"]), {}, rows, Path())


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_the_closest_method_comes_first_and_each_size_has_a_table_of_what_was_measured():
    far = Closeness([20.0, 24.0], [0.8, 0.9], [], [0.2, 0.3], [2.0, 2.5], [0.01, 0.004])
    near = Closeness([40.0, 50.0], [0.99, 1.0], [], [0.001, 0.002], [1.0], [0.0001, 0.00001])
    table, other = closeness_table(
        run_of(
            EvaluationRow(SIZE, "dense", 2, 25, 2.0, 1.0, None, 7.0),
            EvaluationRow(SIZE, "tome:0.5", 2, 25, 1.6, 1.25, None, 9.5, far),
            EvaluationRow(SIZE, "todome:2", 2, 25, 1.0, 2.0, None, 7.25, near),
            EvaluationRow((1024, 768), "dense", 1, 25, 2.0, 1.0),
        )
    ).split("\n\n1024x768 pixels, 1 picture of each\n\n")
    title, _, *lines = table.partition("\n\n")
    assert title == "512x512 pixels, 2 pictures of each"
    assert cells(lines[0]) == [
        ["method", "speed-up", "s / picture", "PSNR, dB", "worst 5 %", "SSIM", "LPIPS", "detail", "FID"],
        ["--------", "--------", "-----------", "--------", "---------", "-----", "------", "------", "----"],
        ["dense", "1.00x", "2.000", "-", "-", "-", "-", "-", "7.00"],
        ["todome 2", "2.00x", "1.000", "45.0", "40.0", "0.995", "0.0015", "1.00", "7.25"],
        ["tome 0.5", "1.25x", "1.600", "22.0", "20.0", "0.850", "0.2500", "2.25", "9.50"],
    ]
    assert cells(other)[0] == ["method", "speed-up", "s / picture"]
    assert len({len(line) for line in lines[0].splitlines()}) == 1


def test_the_table_of_tome():
    table = tome_table(
        run_of(
            EvaluationRow(SIZE, "dense", 2, 50, 3.0, 1.0, 3.4, 33.0),
            EvaluationRow(SIZE, "todome:2", 2, 50, 1.5, 2.0, 1.7, 32.95),
            EvaluationRow(SIZE, "tome:0.6", 2, 50, 2.0, 1.5, 0.85, 34.5),
            EvaluationRow(SIZE, "tome:0.1", 2, 50, 2.5, 1.2, 2.72, 33.25),
        )
    )
    assert cells(table)[0::2] == [
        ["r%", "FID ↓", "s/im ↓", "GB/im ↓"],
        ["0", "33.00", "3.000", "3.400"],
        ["60", "34.50", "2.000 (1.50x)", "0.850 (4.00x)"],
    ]
    assert [line[0] for line in cells(table)[2:]] == ["0", "10", "60", "todome 2"]


def test_the_table_of_todo():
    near = Closeness(psnr=[40.0, 50.0], detail=[0.9, 1.0], mse=[0.0001, 0.00001])
    table = todo_table(
        run_of(
            EvaluationRow(SIZE, "dense", 2, 25, 2.0, 1.0),
            EvaluationRow(SIZE, "todo:2", 2, 25, 1.0, 2.0, closeness=near),
            EvaluationRow((768, 768), "tome:0.89,stride=3", 2, 25, 2.0, 2.0, closeness=near),
        )
    )
    assert cells(table)[0::2] == [
        ["size", "method", "ratio", "MSE ↓", "HPF ↑", "PSNR ↑", "im/s ↑"],
        ["512x512", "dense", "-", "-", "-", "-", "0.500"],
        ["768x768", "tome 0.89, stride=3", "0.8889", "0.00006", "0.950", "45.0", "0.500"],
    ]
    assert cells(table)[3][2] == "0.75"


def test_what_the_table_of_tome_measures():
    fields = TABLES["tome"].fields("any", None)
    assert fields["methods"] == [*(f"tome:0.{i}" for i in range(1, 7)), "todome:2"]
    assert (fields["steps"], fields["scheduler"], TABLES["tome"].fid) == (50, "pndm", True)


@pytest.mark.parametrize(("model", "base"), [("todome-flowers", 256), ("any", 512)])
def test_what_the_table_of_todo_measures(model, base):
    fields = TABLES["todo"].fields(model, None)
    assert fields["sizes"] == [(base * factor, base * factor) for factor in (2, 3, 4)]
    plan = EvaluationPlan(["a"], ["dense", *fields["methods"]], sizes=fields["sizes"], only=fields["only"])
    for size, factor in zip(plan.sizes, (2, 3, 4), strict=True):
        dense, tome, todo, todome = (method_named(name) for name in plan.methods_at(size))
        assert dense.is_dense
        assert tome.reduction == Merge(1 - 1 / factor**2, stride=(factor, factor))
        assert todo.reduction == Downsample(factor, phase="fixed")
        assert todome.reduction == Downsample(factor)


def test_other_sizes_have_the_factor_that_leaves_as_many_keys():
    only = TABLES["todo"].fields("any", [(1024, 1024), (1280, 768), (2048, 2048)])["only"]
    assert only["todo:2"] == only["tome:0.75"] == only["todome:2"] == ["1024x1024", "1280x768"]
    assert only["todo:4"] == only["tome:0.94,stride=4"] == only["todome:4"] == ["2048x2048"]
    assert len(only) == 6
