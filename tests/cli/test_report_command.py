"""`todome report`: says where the report and its plots are, and overwrites only its own."""

from pathlib import Path

import pytest
from PIL import Image

from todome.tools.measuring.runs import Closeness, Evaluation, EvaluationPlan, EvaluationRow, save_results


@pytest.fixture
def evaluated(tmp_path: Path) -> Path:
    """The smallest evaluation that there is something to say about."""
    rows = [
        EvaluationRow((8, 8), "dense", 1, 25, 2.0, 1.0),
        EvaluationRow((8, 8), "todome:2", 1, 25, 1.0, 2.0, closeness=Closeness(psnr=[40.0])),
    ]
    run = Evaluation(
        EvaluationPlan(["a rose"], ["dense", "todome:2"], sizes=((8, 8),), pictures=1), {}, rows, tmp_path / "run"
    )
    for row in rows:
        path = run.picture(row.size, row.method, 0)
        path.parent.mkdir(parents=True)
        Image.new("RGB", row.size, "red").save(path)
    save_results(run)
    return run.folder


def test_it_says_where_everything_is(run, evaluated):
    (evaluated / "report.html").write_text("an older one")
    result = run("report", "run")
    assert result.exit_code == 0, result.output
    plots = [f"run/plots/{plot}-8x8.{kind}" for plot in ("pareto", "worst-cases") for kind in ("png", "svg")]
    assert result.stdout.splitlines() == ["Report: run/report.html, 0.1 MB", *(f"Plot: {plot}" for plot in plots)]
    assert all(Path(plot).is_file() for plot in plots)
    assert (evaluated / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.usefixtures("evaluated")
def test_the_file_of_another_is_kept(run, refused):
    Path("mine.html").write_text("a user's own")
    remedy = "Choose another name, or overwrite it with --force."
    text = f"out='mine.html' exists already. {remedy}"
    assert refused("report", "run", "--out", "mine.html") == text
    assert Path("mine.html").read_text() == "a user's own"
    assert run("report", "run", "--out", "mine.html", "--force").exit_code == 0
    assert Path("mine.html").read_text().startswith("<!doctype html>")
    assert not Path("run/report.html").exists()


@pytest.mark.usefixtures("evaluated")
def test_what_a_browser_would_not_open(refused):
    text = "out='a.pdf' does not end in .html, which a browser opens. Use a.html."
    assert refused("report", "run", "-o", "a.pdf") == text


def test_a_folder_without_an_evaluation(refused):
    allowed = "Allowed: the folder of an evaluation, with a results.json."
    assert refused("report", "none") == f"run='none' cannot be used. {allowed} Make one with todome eval."


@pytest.mark.usefixtures("evaluated")
def test_no_cases(refused):
    assert refused("report", "run", "--cases", 0, code=2).startswith("Invalid value for '--cases'")
