"""The scripts of the figures draw, and what one of them shows is so."""

import importlib
import json
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
    for name in ("canvas", "grid", "phases", "levels", "why", "lines"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["grid", "phases", "levels"])
def test_scripts_draw(script: Any, name: str):
    assert len(list(ElementTree.fromstring(script(name).drawing()))) > 10


@pytest.mark.parametrize("name", ["lines", "why"])
def test_scripts_draw_what_was_measured(script: Any, name: str):
    found = json.loads((FIGURES / f"{name}.json").read_text())
    drawing = script(name).drawing_of(found)
    assert drawing == (FIGURES / f"{name}.svg").read_text()


def test_the_page_of_reuse_says_how_far_its_lines_are_off():
    page = " ".join((ROOT / "docs/reuse.md").read_text().split())
    missed = [one["missed"] for one in json.loads((FIGURES / "lines.json").read_text())["quantities"].values()]
    (guidance, deep, picture), repeated = ([100 * one[way] for one in missed] for way in ("line", "repeated"))
    assert (
        f"guidance by {guidance:.0f} %, the deep features by {deep:.0f} % and the predicted picture by {picture:.1f} %"
        in page
    )
    assert "would miss them by {:.0f}, {:.0f} and {:.1f} %".format(*repeated) in page


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["layers", "pareto", "speed", "tuning"])
def test_scripts_plot_the_results(tmp_path: Path, name: str):
    made = tmp_path / f"{name}.svg"
    subprocess.run([python_after(TORCH), FIGURES / f"{name}.py", made], check=True)
    assert ElementTree.parse(made).getroot().tag.endswith("svg")
