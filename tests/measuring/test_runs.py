"""The folder of an evaluation: what is written can be read, and no name in its files leads out of it."""

import json
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
    features_path,
    picture_path,
    read_results,
    save_results,
    times_path,
    write_json,
)

PLAN = EvaluationPlan(["a", "b"], ["dense", "todo:2", "todo:4"], sizes=((8, 16), (32, 32)), only={"todo:4": ["32x32"]})


def test_what_is_saved_is_read_again(tmp_path):
    row = EvaluationRow(
        (8, 16), "todo:2", 2, 25, 0.5, 1.5, 2.25, 3.5, Closeness(psnr=(30.0, 40.0), mse=(0.001, 0.0001))
    )
    run = Evaluation(PLAN, {"cpu": "abacus"}, [row], tmp_path)
    save_results(run)
    assert read_results(tmp_path) == run


def test_what_is_drawn_of_which_picture():
    assert [PLAN.prompt(i) for i in range(3)] == ["a", "b", "a"]
    assert PLAN.methods_at((8, 16)) == ["dense", "todo:2"]
    assert PLAN.methods_at((32, 32)) == ["dense", "todo:2", "todo:4"]


def test_names_of_files(tmp_path):
    name = "todome:4,2,stop=0.8"
    assert picture_path(tmp_path, (8, 16), name, 7) == tmp_path / "pictures/8x16/todome_4-2-stop_0.8/00007.png"
    assert times_path(tmp_path, (8, 16), name) == tmp_path / "times/8x16/todome_4-2-stop_0.8.json"
    assert features_path(tmp_path, (8, 16), "dense") == tmp_path / "features/8x16/dense.safetensors"


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


def test_a_file_that_cannot_be_written_is_left_as_it_was(tmp_path):
    write_json(tmp_path / "a.json", [1])
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", [2, object()])
    assert json.loads((tmp_path / "a.json").read_text()) == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"plan": {}, "about": {}, "rows": [1]}', '{"plan": {}, "about": {}, "rows": []}']
)
def test_results_that_cannot_be_read(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(ValueError, match=r"^run=.* evaluate again into another folder\.$"):
        read_results(tmp_path)


def test_a_folder_without_results(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^run=.* Make one with todome eval\.$"):
        read_results(tmp_path / "none")
