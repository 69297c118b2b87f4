"""An evaluation that goes on: what is drawn again and what is not, what may be added and what may not be changed."""

import json
import math
import shutil
from dataclasses import replace

import pytest
import todome_flowers
from small_evaluation import BATCHES, PLAN, SIZE, refusal

from todome.hooks.modules import clocks_on
from todome.tools.measuring.evaluation import carry_out
from todome.tools.measuring.runs import picture_path, read_results, times_path


def test_a_finished_run_draws_nothing(folder, again, calls):
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    again()
    assert calls == []
    assert {path: path.read_bytes() for path in folder.rglob("*.*")} == before


def test_the_pipeline_is_not_even_opened(tmp_path, flowers, lpips):
    plan = replace(PLAN, model="nowhere/model", pictures=1)
    drawn = carry_out(plan, tmp_path, pipe=flowers, lpips=lpips)
    assert carry_out(plan, tmp_path, lpips=lpips, device="cpu").rows == drawn.rows


def test_an_interrupted_run_goes_on(tmp_path, finished, flowers, calls, lpips):
    calls.most = 5  # after the first batch of todome
    with pytest.raises(KeyboardInterrupt):
        carry_out(PLAN, tmp_path, pipe=flowers, lpips=lpips)
    assert not clocks_on(flowers.unet)
    assert [row.method for row in read_results(tmp_path).rows] == ["dense"]
    calls.clear()
    calls.most = math.inf
    run = carry_out(PLAN, tmp_path, pipe=flowers, lpips=lpips)
    assert calls == [(1, 1), (1, 2)]
    assert run.rows[1].closeness == read_results(finished).rows[1].closeness


def test_a_picture_that_is_gone_is_drawn_again_with_its_batch_and_one_without_its_time(folder, again, calls):
    path = picture_path(folder, SIZE, "todome:2", 1)
    before = path.read_bytes()
    path.unlink()
    again()
    assert calls == [(2, 1), (2, 2)]
    assert path.read_bytes() == before
    calls.clear()
    times_path(folder, SIZE, "todome:2").unlink()
    again()
    assert calls == BATCHES


def test_methods_and_pictures_can_be_added(folder, again, calls):
    run = again(replace(PLAN, methods=["dense:1"], pictures=4))
    assert calls == [(2, 1), (2, 2)] * 2 + [(2, 1), (2, 1), (2, 1)]
    found = [(row.method, row.pictures, row.steps) for row in run.rows]
    assert found == [("dense", 4, 2), ("todome:2", 4, 2), ("dense:1", 4, 1)]
    assert json.loads((folder / "run.json").read_text())["plan"]["methods"] == ["dense", "todome:2", "dense:1"]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"steps": 3}, "steps=3 cannot be used. Allowed: 2, as in {}."),
        ({"prompts": ["a rose", "a daisy"]}, "prompts[1]='a daisy' cannot be used. Allowed: 'a tulip', as in {}."),
        ({"prompts": ["a rose"]}, "prompts[1]=None cannot be used. Allowed: 'a tulip', as in {}."),
        ({"sizes": ((32, 40),)}, "sizes[0][1]=40 cannot be used. Allowed: 32, as in {}."),
        ({"pictures": 2}, "pictures=2 cannot be used. Allowed: at least 3, as in {}."),
    ],
    ids=str,
)
def test_another_plan_is_refused(folder, again, changed, text):
    told = refusal(lambda: again(replace(PLAN, **changed)))
    assert told == text.format(folder / "run.json") + " Evaluate into another folder."


@pytest.mark.parametrize("field", ["cpu", "weights"])
def test_another_machine_and_other_weights_are_refused(folder, again, field):
    """Times of two machines in one table would compare the machines, and pictures of two trainings these."""
    found = json.loads((folder / "run.json").read_text())
    assert found["about"]["weights"] == todome_flowers.fingerprint()
    found["about"][field] = "another"
    (folder / "run.json").write_text(json.dumps(found))
    assert "Allowed: 'another', as in" in refusal(again)


def test_a_plan_of_which_nothing_was_drawn_can_be_changed(folder, again, calls):
    shutil.rmtree(folder / "times")
    again(replace(PLAN, batch=3))
    assert calls == [(3, 1), (3, 2)] * 2
