"""`todome.tune`: a plan that keeps its budget where it is drawn, from measurements that are never made twice."""

import functools
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import cpu_offload
from hypothesis import given
from hypothesis import strategies as st
from small_tuning import PROMPTS, SMALL, counting
from zoo import small_unet

import todome
from todome import Plan
from todome.hooks.modules import clocks_on
from todome.tools.tuning.control import Control
from todome.tools.tuning.drawings import closeness
from todome.tools.tuning.layer_times import FACTORS, is_worth_trying, never_falling
from todome.tools.tuning.progress import Progress
from todome.tools.tuning.records import FILE
from todome.tools.tuning.search import Trial
from todome.tools.tuning.tuner import Tuner, measured_of, prompts_apart


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    return counting(monkeypatch)


@pytest.fixture
def drawn(pipe: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the pipeline was asked for, each time: latents or pictures. Drawing too often can be made to fail."""
    seen, own = [], type(pipe).__call__

    @functools.wraps(own)
    def call(self: Any, prompt: list[str], **options: Any) -> Any:
        if "output_type" in options:
            seen.append(options["output_type"])
        return own(self, prompt, **options)

    monkeypatch.setattr(type(pipe), "__call__", call)
    return seen


@pytest.fixture
def run(pipe: Any, tuned: tuple[Path, Plan], tmp_path: Path) -> Any:
    """Tunes in a folder with the measurements of the finished run."""
    shutil.copytree(tuned[0], tmp_path / "run")
    return lambda **changes: todome.tune(pipe, **{**SMALL, "out": tmp_path / "run", **changes})


def drawn_again(pipe: Any, plan: Plan | None, prompts: dict[int, str]) -> torch.Tensor:
    """Pictures of some seeds and prompts, by a user of the pipeline and of `apply`."""
    todome.remove(pipe) if plan is None else todome.apply(pipe, plan)
    size = {"height": 32, "width": 32, "num_inference_steps": 4, "output_type": "pt"}
    noise = {seed: torch.Generator().manual_seed(seed) for seed in prompts}
    pictures = [pipe(prompt, generator=noise[seed], **size).images for seed, prompt in prompts.items()]
    todome.remove(pipe)
    return torch.cat(pictures)


HELD_OUT, OTHERS = {1: PROMPTS[1], 2: PROMPTS[2]}, {3: PROMPTS[3], 4: PROMPTS[1]}


def test_the_plan_keeps_the_budget_where_a_user_draws_with_it(pipe, run):
    plan = run(keep=30)
    for prompts, found in [(HELD_OUT, plan.measured), (OTHERS, plan.measured["others"])]:
        error = (drawn_again(pipe, plan, prompts) - drawn_again(pipe, None, prompts)).square().mean().item()
        assert found["psnr"] == pytest.approx(-10 * math.log10(error), abs=0.02)
    assert plan.measured["psnr"] >= 30
    assert plan.measured["speedup"] > 1.05
    assert any(layer.factor > 1 or layer.later > 1 for layer in plan.layers.values())
    assert "dB to dense" in str(plan)
    assert not clocks_on(pipe.unet)


def test_a_plan_says_what_it_was_measured_on(run, tmp_path):
    plan = run(keep=30)
    found = plan.measured
    assert (found["class"], found["size"], found["steps"]) == ("UNet2DConditionModel", [32, 32], 4)
    assert {"fingerprint", "scheduler", "device", "dtype", "versions", "date", "guidance", "share"} <= found.keys()
    assert found["worst"] <= found["low"] <= found["high"]
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").measured == found


def test_without_time_no_other_pictures_check_the_plan(run, tuned, tmp_path, monkeypatch):
    known = [line for line in (tuned[0] / FILE).read_text().splitlines() if "others" not in line]
    (tmp_path / "run" / FILE).write_text("\n".join(known))
    monkeypatch.setattr(Progress, "has_time_for", lambda *_: False)
    plan = run(keep=30)
    assert plan == tuned[1]
    assert tuned[1].measured.keys() - plan.measured.keys() == {"others"}


def test_a_step_is_timed_with_as_many_pictures_as_are_drawn_at_once(pipe):
    rows, counts = set(), {"calibration": 2, "held_out": 2, "batch": 2}
    pipe.unet.register_forward_pre_hook(lambda unet, args, kwargs: rows.add(len(args[0])), with_kwargs=True)
    assert todome.tune(pipe, **{**SMALL, **counts}, keep=30).measured["batch"] == 2
    assert rows == {4}  # with guidance


def test_a_larger_budget_is_no_slower(run):
    assert run(keep=20).measured["speedup"] >= run(keep=40).measured["speedup"]


def test_the_closest_plan_at_a_speed(run):
    slow, fast = run(faster=1.1).measured, run(faster=1.4).measured
    assert slow["speedup"] >= 1.1
    assert fast["speedup"] >= 1.4
    assert slow["psnr"] >= fast["psnr"]


def test_the_same_call_again_measures_nothing(tuned, run, drawn):
    plan, again = tuned[1], run(keep=30)
    assert not drawn
    assert again == plan
    assert again.measured == plan.measured
    run(keep=25)
    assert "latent" not in drawn  # layers are what they are, whatever the budget


def test_a_process_with_another_order_of_the_schedulers_defaults_measures_nothing_again(pipe, tuned, run, drawn):
    defaults = pipe.scheduler.config["_use_default_values"]
    assert len(defaults) > 1
    pipe.scheduler.register_to_config(_use_default_values=defaults[::-1])
    assert run(keep=30) == tuned[1]
    assert not drawn


def test_an_interrupted_run_goes_on(pipe, tuned, run, drawn, tmp_path):
    other = tmp_path / "other"

    def interrupted(self: Progress, steps: int) -> None:
        if len(drawn) == 20:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(keep=30, out=other)
    assert not clocks_on(pipe.unet)
    kept = (other / FILE).read_text().splitlines()
    assert len(kept) == 19  # the times and 18 layers: the first drawing was the dense one, the last was cut off
    drawn.clear()
    assert run(keep=30, out=other) == tuned[1]
    assert drawn.count("latent") == 7 * 2 * 4 + 1 - 18
    assert (other / FILE).read_text() == (tuned[0] / FILE).read_text()


def test_other_conditions_are_measured_anew(run, drawn, monkeypatch):
    def interrupted(self: Progress, steps: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(keep=30, steps=1)
    assert "latent" in drawn


def test_a_budget_that_nothing_keeps_leaves_all_dense_and_says_what_was_drawn(run, monkeypatch):
    monkeypatch.setattr("todome.tools.tuning.search.ROUNDS", 1)  # of every layer at factor 2
    plan = run(keep=90)
    assert {(layer.factor, layer.later) for layer in plan.layers.values()} == {(1, 1)}
    assert plan.measured["verdict"].startswith("Nothing to gain at 90 dB: what was drawn is ")
    assert " dB at 2.04x. All stays dense." in plan.measured["verdict"]


def test_a_speed_that_is_out_of_reach_says_which_one_is_not(run):
    with pytest.raises(
        ValueError, match=r"faster=15 cannot be used. Allowed: up to about 2.76 on this model, at 32x32"
    ):
        run(faster=15)


def test_where_attention_costs_nothing_that_is_the_answer(drawn, monkeypatch):
    plan = todome.tune(counting(monkeypatch, 1e9), **SMALL, keep=30)
    assert plan.measured["verdict"].startswith(
        "Nothing to gain here: with all layers at the largest factor that is tried, a step would be 1.00x"
    )
    assert not drawn


def test_too_little_time_is_said(run, tmp_path):
    with pytest.raises(ValueError, match=r"minutes=1e-09 cannot be used. Allowed: enough to draw a plan"):
        run(keep=30, minutes=1e-9, out=tmp_path / "other")


@pytest.mark.parametrize(("goal", "least"), [({"keep": 20}, 20), ({"faster": 1.2}, 0)])
def test_without_time_for_single_layers_those_of_a_level_are_alike(run, monkeypatch, tmp_path, goal, least):
    monkeypatch.setattr(Tuner, "measure_layers", lambda self, search: None)
    plan = run(out=tmp_path / "other", **goal)
    by_level = {layer.tokens: set[tuple[float, float]]() for layer in plan.layers.values()}
    for layer in plan.layers.values():
        by_level[layer.tokens].add((layer.factor, layer.later))
    assert [len(factors) for factors in by_level.values()] == [1] * len(by_level)
    assert plan.measured["psnr"] >= least
    assert plan.measured["speedup"] >= goal.get("faster", 1)
    assert "no time to measure single layers, so those of a level are alike" in plan.measured["verdict"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "(keep, faster)=(None, None) cannot be used. Allowed: exactly one of the two"),
        ({"keep": 40, "faster": 2}, "(keep, faster)=(40, 2) cannot be used"),
        ({"keep": 400}, "keep=400 cannot be used. Allowed: a number of dB from 10 to 90"),
        ({"faster": 1}, "faster=1 cannot be used. Allowed: a number above 1"),
        ({"keep": 40, "held_out": 0}, "held_out=0 cannot be used"),
        ({"keep": 40, "width": None}, "(height, width)=(32, None) cannot be used. Allowed: both or none"),
        ({"keep": 40, "width": 33}, "Width 33 does not work: this model needs multiples of 8"),
        ({"keep": 40, "prompts": []}, "prompts=[] cannot be used. Allowed: at least two: some that layers are"),
        ({"keep": 40, "prompts": ["a", "a"]}, "prompts=['a', 'a'] cannot be used. Allowed: at least two"),
        ({"keep": 40, "prompts": None}, "Pass prompts=[...], or --prompts FILE"),
        ({"keep": 40, "vae": "vae"}, "vae='vae' cannot be used. Allowed: None, where the pipeline is open. Load it"),
    ],
)
def test_bad_input_is_refused_before_anything_is_drawn(run, drawn, changes, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        run(**changes)
    assert not drawn


class Begun(Exception):
    """Ends a tuning where it would begin to measure."""


def test_a_compiled_model_is_the_same_model_and_takes_long(run, pipe, tuned, monkeypatch):
    def begin(tuner: Tuner) -> None:
        assert tuner.about()["class"] == "UNet2DConditionModel"
        assert tuner.about()["fingerprint"] == tuned[1].measured["fingerprint"]
        assert tuner.about()["compiled"]
        assert not tuner.records.found  # times of a model that is not compiled are others
        raise Begun

    monkeypatch.setattr(Tuner, "run", begin)
    pipe.unet = torch.compile(pipe.unet, backend="eager")
    with (
        pytest.warns(UserWarning, match="This model is compiled, and is compiled again"),
        pytest.raises(Begun),
    ):
        run(keep=30)


def test_a_model_that_is_offloaded_layer_by_layer_is_refused_and_takes_the_plan(run, pipe, tuned):
    expected = drawn_again(pipe, tuned[1], HELD_OUT)
    cpu_offload(pipe.unet, execution_device=torch.device("cpu"))
    with pytest.raises(ValueError, match=r"model='UNet2DConditionModel' cannot be used\. Allowed: one whose weights"):
        run(keep=30)
    assert torch.equal(drawn_again(pipe, tuned[1], HELD_OUT), expected)


def test_a_model_without_layers_is_refused(run, pipe):
    pipe.unet = small_unet(
        down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2, mid_block_type=None
    )
    with pytest.raises(todome.NothingToReduce, match="has no BasicTransformerBlock"):
        run(keep=40)


def test_fewer_steps_that_are_closer_are_named():
    assert Control(18, 50.25).verdict(45.0) == "18 dense steps are closer at that speed, by 5.2 dB: take these instead."
    assert Control(18, 40.0).verdict(45.0) == "18 dense steps are as fast, and 5.0 dB further off."


def test_closeness_is_that_of_the_mean_error():
    assert closeness([1e-4, 3e-4]) == {"psnr": 36.99, "worst": 35.23, "low": 36.42, "high": 38.81, "pictures": 2}
    assert closeness([0.0])["psnr"] == 100


@given(st.lists(st.text(), min_size=2, max_size=12, unique=True), st.integers(1, 5), st.integers(1, 4))
def test_no_prompt_that_layers_are_measured_with_is_held_out(prompts: list[str], calibration: int, held_out: int):
    found = prompts_apart(prompts, calibration, held_out)
    assert len(found) == calibration + 2 * held_out
    first, others = {*found[:calibration]}, {*found[calibration:]}
    assert first
    assert not first & others
    assert len(others) == min(2 * held_out, len(prompts) - len(first))
    if len(prompts) >= 2 * calibration:
        assert len(first) == calibration


@pytest.mark.parametrize(
    ("measured", "used"),
    [
        ([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]),
        ([0.05, -0.02, 0.0, -0.01], [0.005] * 4),  # noise around nothing
        ([0.1, 0.3, 0.2, 0.4], [0.1, 0.25, 0.25, 0.4]),
    ],
)
def test_noise_of_times_is_averaged_and_not_taken_for_a_gain(measured, used):
    assert never_falling(measured) == pytest.approx(used)


@pytest.mark.parametrize(
    ("side", "tried"),
    [(3, [1.5, 2, 3]), (16, [1.5, 2, 3, 4]), (191, [1.5, 2, 3, 4]), (192, [1.5, 2, 3, 4, 6])],
)
def test_large_factors_are_for_large_grids(side, tried):
    assert sorted(factor for factor in FACTORS if is_worth_trying(factor, (side, side))) == tried


def test_what_other_pictures_have_is_said():
    trial, said = Trial({}, [1e-4], 1.234, 0.0), "40.0 dB to dense, 1.23x as fast. 37.0 dB on 2 other pictures, which"
    found = measured_of(trial, None, 0.0, [1e-4, 3e-4], keep=35)
    assert found["verdict"] == f"{said} did not choose the plan."
    assert found["others"]["worst"] == 35.23
    assert measured_of(trial, None, 0.0, [1e-4, 3e-4], keep=40)["verdict"] == (
        f"{said} did not choose the plan. Pictures differ: ask for more, or hold out more of them, to keep the budget "
        "on most."
    )


def test_noise_is_said():
    trial = Trial({}, [1e-4], 1.234, 0.0)
    assert measured_of(trial, None, 0.1)["verdict"] == "40.0 dB to dense, 1.23x as fast."
    assert measured_of(trial, Control(20, 35.0), 0.5)["verdict"] == (
        "40.0 dB to dense, 1.23x as fast. 20 dense steps are as fast, and 5.0 dB further off. Something else is using "
        "this machine: times vary by 50%, so do not trust the speed."
    )
