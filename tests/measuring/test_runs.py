"""The folder of an evaluation: what is written can be read, and is there whole or not at all."""

import json

import pytest

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


def test_prompts_are_used_in_turn():
    assert [PLAN.prompt(i) for i in range(3)] == ["a", "b", "a"]


def test_some_methods_are_for_some_sizes():
    assert PLAN.methods_at((8, 16)) == ["dense", "todo:2"]
    assert PLAN.methods_at((32, 32)) == ["dense", "todo:2", "todo:4"]


def test_names_of_files(tmp_path):
    name = "todome:4,2,stop=0.8"
    assert picture_path(tmp_path, (8, 16), name, 7) == tmp_path / "pictures/8x16/todome_4-2-stop_0.8/00007.png"
    assert times_path(tmp_path, (8, 16), name) == tmp_path / "times/8x16/todome_4-2-stop_0.8.json"
    assert features_path(tmp_path, (8, 16), "dense") == tmp_path / "features/8x16/dense.safetensors"


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
    with pytest.raises(ValueError, match="cannot be used") as error:
        read_results(tmp_path)
    allowed = "Allowed: the folder of an evaluation, with a results.json."
    remedy = "This one cannot be read: evaluate again into another folder."
    assert str(error.value) == f"run={str(tmp_path)!r} cannot be used. {allowed} {remedy}"


def test_a_folder_without_results(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        read_results(tmp_path / "none")
    allowed = "Allowed: the folder of an evaluation, with a results.json."
    assert str(error.value) == f"run={str(tmp_path / 'none')!r} cannot be used. {allowed} Make one with todome eval."
