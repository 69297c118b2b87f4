"""An evaluation that goes on: what is drawn again and what is not, what may be added and what may not be changed."""

import json
import shutil
from dataclasses import replace
from typing import Any

import pytest
import todome_flowers
from small_evaluation import BATCHES, PLAN, SIZE, refusal

from todome.hooks.modules import clocks_on
from todome.tools.measuring.drawing import PictureMaker
from todome.tools.measuring.evaluation import carry_out
from todome.tools.measuring.runs import picture_path, read_results


def test_a_finished_run_draws_nothing(folder, again, calls):
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    again()
    assert calls == []
    assert {path: path.read_bytes() for path in folder.rglob("*.*")} == before


def test_the_pipeline_is_not_even_opened(folder, lpips, monkeypatch):
    monkeypatch.setattr("todome.tools.pipelines.open_pipeline", None)
    assert len(carry_out(PLAN, folder, lpips=lpips, device="cpu").rows) == 2


def test_an_interrupted_run_goes_on(tmp_path, finished, flowers, calls, lpips, monkeypatch):
    def interrupted(*_: Any) -> None:
        if len(calls) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        own = PictureMaker.write_pictures
        patch.setattr(PictureMaker, "write_pictures", lambda *words: (own(*words), interrupted()))
        with pytest.raises(KeyboardInterrupt):
            carry_out(PLAN, tmp_path, pipe=flowers, lpips=lpips)
    assert not clocks_on(flowers.unet)
    assert [row.method for row in read_results(tmp_path).rows] == ["dense"]
    calls.clear()
    run = carry_out(PLAN, tmp_path, pipe=flowers, lpips=lpips)
    assert calls == BATCHES  # of todome: the pictures of its first batch had no time yet
    assert run.rows[1].closeness == read_results(finished).rows[1].closeness


def test_a_picture_that_is_gone_is_drawn_again_with_its_batch(folder, again, calls):
    path = picture_path(folder, SIZE, "todome:2", 1)
    before = path.read_bytes()
    path.rename(path.with_name(f".{path.name}.123.part"))
    again()
    assert calls == [(2, 1), (2, 2)]
    assert path.read_bytes() == before


def test_methods_and_pictures_can_be_added(folder, again, calls):
    run = again(replace(PLAN, methods=["dense:1"], pictures=4))
    assert calls == [(2, 1), (2, 2)] * 2 + [(2, 1), (2, 1), (2, 1)]
    assert [(row.method, row.pictures, row.steps) for row in run.rows] == [
        ("dense", 4, 2),
        ("todome:2", 4, 2),
        ("dense:1", 4, 1),
    ]
    assert json.loads((folder / "run.json").read_text())["plan"]["methods"] == ["dense", "todome:2", "dense:1"]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"steps": 3}, "steps=3 cannot be used. Allowed: 2, as in {}."),
        ({"prompts": ["a rose", "a daisy"]}, "prompts[1]='a daisy' cannot be used. Allowed: 'a tulip', as in {}."),
        ({"prompts": ["a rose"]}, "prompts[1]=None cannot be used. Allowed: 'a tulip', as in {}."),
        ({"sizes": ((32, 40),)}, "sizes[0][1]=40 cannot be used. Allowed: 32, as in {}."),
        ({"sizes": (SIZE, SIZE)}, "sizes[1]=[32, 32] cannot be used. Allowed: None, as in {}."),
        ({"model": "other"}, "model='other' cannot be used. Allowed: 'todome-flowers', as in {}."),
        ({"seed": 1}, "seed=1 cannot be used. Allowed: 0, as in {}."),
        ({"batch": 1}, "batch=1 cannot be used. Allowed: 2, as in {}."),
        ({"scheduler": "ddim"}, "scheduler='ddim' cannot be used. Allowed: None, as in {}."),
        ({"pictures": 2}, "pictures=2 cannot be used. Allowed: at least 3, as in {}."),
    ],
    ids=str,
)
def test_another_plan_is_refused(folder, again, changed, text):
    told = refusal(lambda: again(replace(PLAN, **changed)))
    assert told == text.format(folder / "run.json") + " Evaluate into another folder."


def test_another_machine_is_refused(folder, again):
    found = json.loads((folder / "run.json").read_text())
    found["about"]["cpu"] = "abacus"
    (folder / "run.json").write_text(json.dumps(found))
    assert "Allowed: 'abacus', as in" in refusal(again)


def test_other_weights_are_refused(folder, again):
    """Pictures of two trainings in one table would compare the trainings."""
    found = json.loads((folder / "run.json").read_text())
    assert found["about"]["weights"] == todome_flowers.fingerprint()
    found["about"]["weights"] = "0123456789abcdef"
    (folder / "run.json").write_text(json.dumps(found))
    assert "Allowed: '0123456789abcdef', as in" in refusal(again)


def test_a_plan_of_which_nothing_was_drawn_can_be_changed(folder, again, calls):
    shutil.rmtree(folder / "times")
    again(replace(PLAN, batch=3))
    assert calls == [(3, 1), (3, 2)] * 2
