"""The scripts of the figures draw, and what one of them shows is so."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fresh import TORCH, python_after
from pages import ROOT

FIGURES = ROOT / "docs/figures"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(FIGURES))
    yield importlib.import_module
    for name in ("canvas", "grid", "phases", "levels", "why"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["grid", "phases", "levels"])
def test_scripts_draw(script: Any, name: str):
    assert len(list(ElementTree.fromstring(script(name).drawing()))) > 10


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["layers", "pareto", "speed", "tuning"])
def test_scripts_plot_the_results(tmp_path: Path, name: str):
    made = tmp_path / f"{name}.svg"
    subprocess.run([python_after(TORCH), FIGURES / f"{name}.py", made], check=True)
    assert ElementTree.parse(made).getroot().tag.endswith("svg")


@pytest.mark.thorough
def test_dithering_averages_out_as_the_figure_says(script: Any, flowers: Any):
    """One small picture, measured again: alike in a single step, far apart on average."""
    why = script("why")
    runs = why.watch_run(flowers, "a daisy", 0, num_inference_steps=4, height=64, width=64)
    once, averaged = why.means(runs, "once"), why.means(runs, "averaged")
    assert once["dither"][-1] > 0.5 * once["fixed"][-1]
    assert averaged["fixed"][-1] > 0.7 * once["fixed"][-1]
    assert averaged["dither"][-1] < 0.5 * averaged["fixed"][-1]
