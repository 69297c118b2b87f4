"""What the figures show is what the code draws, and what they are drawn from is so."""

import importlib
import json
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import pytest
from fresh import TORCH, python_after
from pages import ROOT

FIGURES = ROOT / "docs/figures"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FIGURES))
    yield importlib.import_module
    for name in ("canvas", "grid", "phases", "levels", "why"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["grid", "phases", "levels"])
def test_figures_are_what_the_code_draws(script: Any, name: str):
    drawing = script(name).drawing()
    assert drawing == (FIGURES / f"{name}.svg").read_text()
    ElementTree.fromstring(drawing)


def test_the_figure_of_errors_is_what_was_measured(script: Any):
    found = json.loads((FIGURES / "why.json").read_text())
    assert script("why").drawing_of(found) == (FIGURES / "why.svg").read_text()


def test_dithering_averages_out_as_the_figure_says(script: Any, flowers: Any):
    """One small picture, measured again: alike in a single step, far apart on average."""
    why = script("why")
    runs = why.watch_run(flowers, "a daisy", 0, num_inference_steps=4, height=64, width=64)
    once, averaged = why.means(runs, "once"), why.means(runs, "averaged")
    assert once["dither"][-1] > 0.5 * once["fixed"][-1]
    assert averaged["fixed"][-1] > 0.7 * once["fixed"][-1]
    assert averaged["dither"][-1] < 0.5 * averaged["fixed"][-1]


@pytest.mark.parametrize("name", ["layers", "pareto", "speed", "tuning"])
def test_plots_are_what_the_results_draw(tmp_path, name: str):
    made = tmp_path / f"{name}.svg"
    subprocess.run([python_after(TORCH), FIGURES / f"{name}.py", made], check=True)
    assert made.read_text() == (FIGURES / f"{name}.svg").read_text()
