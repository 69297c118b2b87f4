"""The folder of an evaluation: what is written can be read, and no name in its files leads out of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from todome.tools.files import inside
from todome.tools.measuring.runs import (
    Closeness,
    Evaluation,
    EvaluationPlan,
    EvaluationRow,
    read_results,
    save_results,
)

PLAN = EvaluationPlan(["a", "b"], ["dense", "todo:2", "todo:4"], sizes=((8, 16), (32, 32)), only={"todo:4": ["32x32"]})


def test_what_is_saved_is_read_again(tmp_path):
    row = EvaluationRow(
        (8, 16), "todo:2", 2, 25, 0.5, 1.5, 2.25, 3.5, Closeness(psnr=(30.0, 40.0), mse=(0.001, 0.0001))
    )
    run = Evaluation(PLAN, {"cpu": "abacus"}, [row], tmp_path)
    save_results(run)
    assert read_results(tmp_path) == run


@given(st.lists(st.sampled_from(["a", "b.png", "..", ".", "", "~", "out"]), max_size=5).map("/".join))
def test_a_name_from_a_file_is_inside_its_folder_or_refused(name: str):
    folder = Path("/nowhere/run")
    resolved = (folder / name).resolve()
    if folder in resolved.parents and not name.startswith("/"):
        assert inside(folder, name, "file") == folder / name
    else:
        with pytest.raises(ValueError, match=r"^file="):
            inside(folder, name, "file")


@pytest.mark.parametrize("name", ["link/a.png", None, 7, "/", "..", "", "."])
def test_links_and_what_is_no_name_are_refused(tmp_path, name):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match=r"^file=.* Allowed: the name of a file inside "):
        inside(tmp_path / "run", name, "file")


def test_results_whose_sizes_lead_elsewhere_are_refused(tmp_path):
    size: Any = ("../../elsewhere/8", 8)
    save_results(Evaluation(replace(PLAN, sizes=[size]), {}, [], tmp_path))
    found = read_results(tmp_path)
    with pytest.raises(ValueError, match=r"^picture='pictures/\.\./\.\./elsewhere/"):
        found.picture(found.plan.sizes[0], "dense", 0)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"plan": {}, "about": {}, "rows": [1]}', '{"plan": {}, "about": {}, "rows": []}']
)
def test_results_that_cannot_be_read(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(ValueError, match=r"^run=.* evaluate again into another folder\.$"):
        read_results(tmp_path)
