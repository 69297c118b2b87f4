"""Tables: their exact text, and what the papers' ones measure."""

from pathlib import Path

import pytest

from todome.reductions import Downsample, Merge
from todome.tools.measuring.methods import method_named
from todome.tools.measuring.runs import Closeness, Evaluation, EvaluationPlan, EvaluationRow
from todome.tools.measuring.tables import TABLES, closeness_table, table_named, todo_table, tome_table, worst

SIZE = (512, 512)
CLOSENESS = """\
512x512 pixels, 2 pictures of each

| method   | speed-up | s/im  | im/s | GB/im | PSNR, dB | worst 5 % | SSIM  | MS-SSIM | LPIPS  | detail | FID  |
| -------- | -------- | ----- | ---- | ----- | -------- | --------- | ----- | ------- | ------ | ------ | ---- |
| dense    | 1.00x    | 2.000 | 0.50 | 1.50  | -        | -         | -     | -       | -      | -      | 7.00 |
| todome 2 | 2.00x    | 1.000 | 1.00 | 0.75  | 45.0     | 40.0      | 0.995 | 0.997   | 0.0015 | 1.00   | 7.25 |
| tome 0.5 | 1.25x    | 1.600 | 0.62 | 1.00  | 22.0     | 20.0      | 0.850 | 0.860   | 0.2500 | 2.25   | 9.50 |"""


def run_of(*rows: EvaluationRow) -> Evaluation:
    return Evaluation(EvaluationPlan(["a"], ["dense"]), {}, rows, Path())


def test_the_worst_5_percent():
    assert worst([float(value) for value in range(40)]) == 0.5
    assert worst([float(value) for value in range(40)], largest=True) == 38.5
    assert worst([3.0, 1.0, 2.0]) == 1
    assert worst([3.0, 1.0, 2.0], largest=True) == 3
    assert worst([]) is None


def test_the_closest_method_comes_first():
    far = Closeness([20.0, 24.0], [0.8, 0.9], [0.85, 0.87], [0.2, 0.3], [2.0, 2.5], [0.01, 0.004])
    near = Closeness([40.0, 50.0], [0.99, 1.0], [0.995, 0.999], [0.001, 0.002], [1.0], [0.0001, 0.00001])
    table = closeness_table(
        run_of(
            EvaluationRow(SIZE, "dense", 2, 25, 2.0, 1.0, 1.5, 7.0),
            EvaluationRow(SIZE, "tome:0.5", 2, 25, 1.6, 1.25, 1.0, 9.5, far),
            EvaluationRow(SIZE, "todome:2", 2, 25, 1.0, 2.0, 0.75, 7.25, near),
        )
    )
    assert table == CLOSENESS


def test_what_was_not_measured_has_no_column_and_each_size_has_a_table():
    rows = [EvaluationRow(size, "dense", 1, 25, 2.0, 1.0) for size in (SIZE, (1024, 768))]
    assert closeness_table(run_of(*rows)) == (
        "512x512 pixels, 1 picture of each\n"
        "\n"
        "| method | speed-up | s/im  | im/s |\n"
        "| ------ | -------- | ----- | ---- |\n"
        "| dense  | 1.00x    | 2.000 | 0.50 |\n"
        "\n"
        "1024x768 pixels, 1 picture of each\n"
        "\n"
        "| method | speed-up | s/im  | im/s |\n"
        "| ------ | -------- | ----- | ---- |\n"
        "| dense  | 1.00x    | 2.000 | 0.50 |"
    )


def test_the_table_of_tome():
    table = tome_table(
        run_of(
            EvaluationRow(SIZE, "dense", 2, 50, 3.0, 1.0, 3.4, 33.0),
            EvaluationRow(SIZE, "todome:2", 2, 50, 1.5, 2.0, 1.7, 32.95),
            EvaluationRow(SIZE, "tome:0.6", 2, 50, 2.0, 1.5, 0.85, 34.5),
            EvaluationRow(SIZE, "tome:0.1", 2, 50, 2.5, 1.2, 2.72, 33.25),
        )
    )
    assert table == (
        "| r%       | FID ↓ | s/im ↓        | GB/im ↓       |\n"
        "| -------- | ----- | ------------- | ------------- |\n"
        "| 0        | 33.00 | 3.000         | 3.400         |\n"
        "| 10       | 33.25 | 2.500 (1.20x) | 2.720 (1.25x) |\n"
        "| 60       | 34.50 | 2.000 (1.50x) | 0.850 (4.00x) |\n"
        "| todome 2 | 32.95 | 1.500 (2.00x) | 1.700 (2.00x) |"
    )


def test_the_table_of_todo():
    near = Closeness(psnr=[40.0, 50.0], detail=[0.9, 1.0], mse=[0.0001, 0.00001])
    table = todo_table(
        run_of(
            EvaluationRow(SIZE, "dense", 2, 25, 2.0, 1.0),
            EvaluationRow(SIZE, "tome:0.75", 2, 25, 1.6, 1.25, closeness=near),
            EvaluationRow(SIZE, "todo:2", 2, 25, 1.0, 2.0, closeness=near),
            EvaluationRow((768, 768), "dense", 2, 25, 4.0, 1.0),
            EvaluationRow((768, 768), "tome:0.89,stride=3", 2, 25, 2.0, 2.0, closeness=near),
            EvaluationRow((768, 768), "todome:3", 2, 25, 2.0, 2.0, closeness=near),
        )
    )
    assert table == (
        "| size    | method              | ratio  | MSE ↓   | HPF ↑ | PSNR ↑ | im/s ↑ |\n"
        "| ------- | ------------------- | ------ | ------- | ----- | ------ | ------ |\n"
        "| 512x512 | dense               | -      | -       | -     | -      | 0.500  |\n"
        "| 512x512 | tome 0.75           | 0.75   | 0.00006 | 0.950 | 45.0   | 0.625  |\n"
        "| 512x512 | todo 2              | 0.75   | 0.00006 | 0.950 | 45.0   | 1.000  |\n"
        "| 768x768 | dense               | -      | -       | -     | -      | 0.250  |\n"
        "| 768x768 | tome 0.89, stride=3 | 0.8889 | 0.00006 | 0.950 | 45.0   | 0.500  |\n"
        "| 768x768 | todome 3            | 0.8889 | 0.00006 | 0.950 | 45.0   | 0.500  |"
    )


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


def test_no_such_table():
    with pytest.raises(ValueError, match="table") as error:
        table_named("sd")
    assert str(error.value) == "table='sd' cannot be used. Allowed: tome or todo. Leave it out for todome's own."
