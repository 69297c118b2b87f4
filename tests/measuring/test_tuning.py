"""`todome.tune`: a plan that keeps its budget where it is drawn, from measurements that are never made twice."""

import functools
import json
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
from todome.hooks.attaching import patches_on
from todome.tools.measuring.drawing import PictureMaker
from todome.tools.measuring.evaluation import plan_for
from todome.tools.pipelines import open_pipeline
from todome.tools.tuning.drawings import Control
from todome.tools.tuning.goal import Goal
from todome.tools.tuning.layer_times import never_falling
from todome.tools.tuning.options import Options
from todome.tools.tuning.progress import Progress
from todome.tools.tuning.records import FILE
from todome.tools.tuning.search import Trial
from todome.tools.tuning.tuner import Tuner, carry_out, check_denoiser, measured_of, prompts_apart

pytestmark = pytest.mark.xdist_group("tuned")  # what they share is made once


class Asked(list[str]):
    """What a pipeline was asked for, each time: latents or pictures. It can be interrupted after so many."""

    most = math.inf


@pytest.fixture
def pipe(model: Path) -> Any:
    pipe = open_pipeline(model, "cpu")
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.fixture
def drawn(pipe: Any, monkeypatch: pytest.MonkeyPatch) -> Asked:
    seen, own = Asked(), type(pipe).__call__

    @functools.wraps(own)
    def call(self: Any, prompt: list[str], **options: Any) -> Any:
        if "output_type" in options:
            seen.append(options["output_type"])
        if len(seen) > seen.most:
            raise KeyboardInterrupt
        return own(self, prompt, **options)

    monkeypatch.setattr(type(pipe), "__call__", call)
    return seen


@pytest.fixture
def run(pipe: Any, tuned: tuple[Path, Plan], tmp_path: Path) -> Any:
    """Tunes in a folder with the measurements of the finished run."""
    shutil.copytree(tuned[0], tmp_path / "run")
    usual = {**SMALL, "out": tmp_path / "run", "options": counting(pipe)}
    return lambda **changes: todome.tune(pipe, **{**usual, **changes})


def probes_in(folder: Path) -> int:
    """How many drawings of single layers a folder keeps."""
    return sum("latent error" in json.loads(line)["what"] for line in (folder / FILE).read_text().splitlines())


def drawn_again(pipe: Any, plan: Plan | None, prompts: dict[int, str]) -> torch.Tensor:
    """Pictures of some seeds and prompts, by a user of the pipeline and of `apply`."""
    todome.remove(pipe) if plan is None else todome.apply(pipe, plan)
    size = {"height": 32, "width": 32, "num_inference_steps": 4, "output_type": "pt"}
    noise = {seed: torch.Generator().manual_seed(seed) for seed in prompts}
    pictures = [pipe(prompt, generator=noise[seed], **size).images for seed, prompt in prompts.items()]
    todome.remove(pipe)
    return torch.cat(pictures)


HELD_OUT, OTHERS = {1: PROMPTS[1], 2: PROMPTS[2]}, {3: PROMPTS[3], 4: PROMPTS[1]}


def test_the_plan_keeps_the_budget_where_a_user_draws_with_it_and_says_what_it_was_measured_on(pipe, run, tmp_path):
    plan = run(keep=30)
    for prompts, found in [(HELD_OUT, plan.evidence), (OTHERS, plan.evidence["others"])]:
        error = (drawn_again(pipe, plan, prompts) - drawn_again(pipe, None, prompts)).square().mean().item()
        assert found["psnr"] == pytest.approx(-10 * math.log10(error), abs=0.02)
        assert found["worst"] <= found["low"] <= found["high"]
    assert plan.evidence["psnr"] >= 30
    assert plan.evidence["speedup"] > 1.05
    assert any(layer.is_reduced for layer in plan.layers.values())
    assert not patches_on(pipe.unet)
    found = plan.conditions
    assert (found["class"], found["size"], found["steps"]) == ("UNet2DConditionModel", [32, 32], 4)
    assert {"fingerprint", "scheduler", "guidance"} <= found.keys()
    assert {"device", "dtype", "versions", "date", "share"} <= plan.evidence.keys()
    plan.save(tmp_path / "plan.json")
    back = Plan.load(tmp_path / "plan.json")
    assert (back.conditions, back.evidence) == (found, plan.evidence)


def test_without_time_no_other_pictures_check_the_plan(run, tuned, tmp_path):
    known = [line for line in (tuned[0] / FILE).read_text().splitlines() if "others" not in line]
    (tmp_path / "run" / FILE).write_text("\n".join(known))
    plan = run(keep=30, minutes=1e-9)
    assert plan == tuned[1]
    assert tuned[1].evidence.keys() - plan.evidence.keys() == {"others"}


@pytest.mark.thorough
def test_a_step_is_timed_with_as_many_pictures_as_are_drawn_at_once(pipe):
    rows, counts = set(), {"calibration": 2, "held_out": 2, "batch": 2}
    pipe.unet.register_forward_pre_hook(lambda unet, args, kwargs: rows.add(len(args[0])), with_kwargs=True)
    plan = todome.tune(pipe, **{**SMALL, **counts}, keep=30, options=counting(pipe, rounds=1))
    assert plan.conditions["batch"] == 2
    assert rows == {4}  # with guidance


@pytest.mark.thorough
def test_goals(run):
    """A larger budget is no slower; a speed is reached, a higher one no closer."""
    assert run(keep=20).evidence["speedup"] >= run(keep=40).evidence["speedup"]
    slow, fast = run(faster=1.1).evidence, run(faster=1.4).evidence
    assert slow["speedup"] >= 1.1
    assert fast["speedup"] >= 1.4
    assert slow["psnr"] >= fast["psnr"]
    with pytest.raises(ValueError, match=r"^faster=15 cannot be used\. Allowed: up to about \d.* at 32x32"):
        run(faster=15)


@pytest.mark.thorough
def test_the_same_call_again_measures_nothing(pipe, tuned, run, drawn):
    """Also in a process where the defaults of the scheduler have another order."""
    pipe.scheduler.register_to_config(_use_default_values=["steps_offset", "clip_sample"])
    plan, again = tuned[1], run(keep=30)
    assert not drawn
    assert again == plan
    assert (again.conditions, again.evidence.keys()) == (plan.conditions, plan.evidence.keys())
    run(keep=25)
    assert "latent" not in drawn  # layers are what they are, whatever the budget


@pytest.mark.thorough
def test_an_interrupted_run_goes_on(pipe, tuned, run, drawn, tmp_path):
    other, drawn.most = tmp_path / "other", 20
    with pytest.raises(KeyboardInterrupt):
        run(keep=30, out=other)
    assert not patches_on(pipe.unet)
    kept = probes_in(other)
    assert kept > 10
    drawn.clear()
    drawn.most = math.inf
    assert run(keep=30, out=other) == tuned[1]
    assert drawn.count("latent") == probes_in(tuned[0]) - kept + 1  # and the dense one
    assert (other / FILE).read_text() == (tuned[0] / FILE).read_text()


def test_other_conditions_are_measured_anew(run, drawn):
    drawn.most = 0
    with pytest.raises(KeyboardInterrupt):
        run(keep=30, steps=1)
    assert drawn == ["latent"]


def test_a_budget_that_nothing_keeps_leaves_all_dense(run, pipe):
    plan = run(keep=90, options=counting(pipe, rounds=1))  # of every layer at factor 2
    assert not any(layer.is_reduced for layer in plan.layers.values())
    assert "All stays dense." in plan.evidence["verdict"]


def test_where_attention_costs_nothing_all_stays_dense_and_nothing_is_drawn(pipe, drawn):
    plan = todome.tune(pipe, **SMALL, keep=30, options=counting(pipe, 1e9))
    assert plan.evidence["speedup"] == 1
    assert plan.evidence["verdict"].startswith("Nothing to gain here")
    assert not drawn


def tuner_of(pipe: Any, options: Options | None = None) -> Tuner:
    drawn = plan_for("small", prompts_apart(PROMPTS, 1, 2), sizes=((32, 32),), steps=4, pictures=3, methods=())
    maker = PictureMaker(drawn, Path(), pipe)
    return Tuner(pipe, maker, Goal(30), 1, None, Progress(None, shown=False), options=options or Options())


def test_too_little_time_is_said(run, tmp_path):
    with pytest.raises(ValueError, match=r"minutes=1e-09 cannot be used. Allowed: enough to draw a plan"):
        run(keep=30, minutes=1e-9, out=tmp_path / "other")


class NoTimeForLayers(Progress):
    """It is over while single layers are measured, and goes on after that."""

    def expect(self, what: str, steps: int) -> None:
        super().expect(what, steps)
        self.what = what

    def has_time_for(self, steps: int, seconds: float = 0.0) -> bool:
        return self.what != "layers"


@pytest.mark.thorough
@pytest.mark.parametrize("goal", [Goal(20), Goal(faster=1.2)])
def test_without_time_for_single_layers_those_of_a_level_are_alike(pipe, goal):
    drawn = plan_for("small", prompts_apart(PROMPTS, 1, 2), sizes=((32, 32),), steps=4, pictures=3)
    plan = carry_out(pipe, drawn, goal, 1, None, NoTimeForLayers(None, shown=False), options=counting(pipe))
    by_level = {(layer.tokens, layer.pieces) for layer in plan.layers.values()}
    assert len(by_level) == len({tokens for tokens, _ in by_level})
    assert plan.evidence["psnr"] >= (goal.keep or 0)
    assert plan.evidence["speedup"] >= (goal.faster or 1)
    assert "those of a level are alike" in plan.evidence["verdict"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "(keep, faster)=(None, None) cannot be used."),
        ({"keep": 40, "faster": 2}, "(keep, faster)=(40, 2) cannot be used."),
        ({"keep": 400}, "keep=400 cannot be used."),
        ({"faster": 1}, "faster=1 cannot be used."),
        ({"keep": 40, "held_out": 0}, "held_out=0 cannot be used."),
        ({"keep": 40, "width": None}, "(height, width)=(32, None) cannot be used."),
        ({"keep": 40, "width": 33}, "Width 33 does not work: this model needs multiples of 8"),
        ({"keep": 40, "prompts": []}, "prompts=[] cannot be used."),
        ({"keep": 40, "prompts": ["a", "a"]}, "prompts=['a', 'a'] cannot be used."),
        ({"keep": 40, "prompts": None}, "prompts=None cannot be used."),
        ({"keep": 40, "vae": "vae"}, "vae='vae' cannot be used."),
        ({"keep": 40, "out": "/proc/run"}, "out='/proc/run' "),
    ],
)
def test_bad_input_is_refused_before_anything_is_drawn(run, drawn, changes, said):
    with pytest.raises((OSError, ValueError), match=f"^{re.escape(said)}"):
        run(**changes)
    assert not drawn


def test_a_compiled_model_is_the_same_model_and_takes_long(pipe, tuned):
    plain = tuner_of(pipe)
    pipe.unet = torch.compile(pipe.unet, backend="eager")
    tuner = tuner_of(pipe)
    assert tuner.about()["fingerprint"] == tuned[1].conditions["fingerprint"]
    assert tuner.about()["compiled"]
    assert tuner.records.conditions != plain.records.conditions  # times of a model that is not compiled are others
    with pytest.warns(UserWarning, match="This model is compiled, and is compiled again"):
        check_denoiser(pipe.unet)


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


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_noise_of_times_is_averaged_and_not_taken_for_a_gain(measured: list[float]):
    used = never_falling(measured)
    assert used == sorted(used)
    assert sum(used) == pytest.approx(sum(measured), abs=1e-9)
    assert measured != sorted(measured) or used == pytest.approx(measured)


@pytest.mark.parametrize(
    ("control", "noise", "others", "keep", "said"),
    [
        (None, 0.0, (), None, ["40.0 dB to dense, 1.23x as fast."]),
        (None, 0.0, [1e-4, 3e-4], 35, ["37.0 dB on 2 other pictures"]),
        (None, 0.0, [1e-4, 3e-4], 40, ["37.0 dB on 2 other pictures", "Pictures differ"]),
        (Control(20, 35.0), 0.0, (), None, ["20 dense steps are as fast, and 5.0 dB further off."]),
        (Control(18, 45.0), 0.0, (), None, ["18 dense steps are closer at that speed, by 5.0 dB"]),
        (None, 0.5, (), None, ["times vary by 50%"]),
    ],
)
def test_the_verdict_says_what_is_known_and_no_more(control, noise, others, keep, said):
    verdict = measured_of(Trial({}, [1e-4], 1.234, 0.0), control, noise, others, keep)["verdict"]
    known = ["other pictures", "Pictures differ", "dense steps are as fast", "are closer at that speed", "times vary"]
    assert all(one in verdict for one in said)
    assert [one for one in known if one in verdict] == [one for one in known if any(one in text for text in said)]
