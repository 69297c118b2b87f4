"""The notebook: its cells are those of its source, what it shows was made by running them, and it runs on any model."""

import re
import runpy
from pathlib import Path
from typing import Any

import jupytext
import matplotlib as mpl
import matplotlib.pyplot as plt
import nbformat
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCE, NOTEBOOK = EXAMPLES / "compare.py", EXAMPLES / "compare.ipynb"
PICTURES = ["png"] * 6  # attention, four pictures, which tokens, coverage, factors, windows


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def pictures(notebook: Any) -> list[str]:
    kinds = [kind for output in outputs(notebook) for kind in output.get("data", {})]
    return [kind.removeprefix("image/") for kind in kinds if kind.startswith("image/")]


def printed(notebook: Any) -> str:
    return "".join(output.text for output in outputs(notebook) if output.output_type == "stream")


@pytest.fixture(scope="module")
def committed() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_its_cells_are_those_of_the_source(committed: Any):
    expected = [(cell.cell_type, cell.source) for cell in jupytext.read(SOURCE).cells]
    assert [(cell.cell_type, cell.source) for cell in committed.cells] == expected


def test_what_it_shows_was_made_by_running_all_of_it_at_its_defaults(committed: Any):
    counts = [cell.execution_count for cell in committed.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert re.match(r"todome-flowers on .+: 'white daisies', 256x256 pixels, 25 steps\n", printed(committed))
    assert pictures(committed) == PICTURES
    kinds = {(output.output_type, output.get("name")) for output in outputs(committed)}
    assert kinds == {("display_data", None), ("stream", "stdout")}  # neither warnings nor errors
    assert NOTEBOOK.stat().st_size < 1_500_000


@pytest.mark.thorough
def test_it_runs_on_a_model_of_your_own(monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: Any):
    """As a script. In a kernel it was run for what it shows, which the tests above read."""
    for name, value in {"MODEL": str(folder), "SIZE": "32x32", "STEPS": "5", "PROMPT": "a rose"}.items():
        monkeypatch.setenv(f"TODOME_{name}", value)
    with mpl.rc_context():
        names = runpy.run_path(str(SOURCE))
    plt.close("all")
    assert capsys.readouterr().out.startswith(f"{folder} on a CPU with 1 threads: 'a rose', 32x32 pixels, 5 steps\n")
    dense, *others = names["made"].values()
    assert len(others) == 3 + 6 + 9
    assert all("16x16 = 256 -> " in made.reduced and made.picture != dense.picture for made in others)
