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
