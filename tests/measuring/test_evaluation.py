"""An evaluation: what it draws and measures, how it goes on, and what it refuses to begin or to change."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import todome_flowers
import torch
from diffusers import StableDiffusionControlNetPipeline
from PIL import Image
from safetensors.torch import load_file, save_file
from small_evaluation import BATCHES, PLAN, SIZE, refusal
from zoo import controlnet, small_unet, talking, tiny_pipeline

import todome
from todome import Downsample
from todome.hooks.attaching import patches_on
from todome.tools.generate import settings_of
from todome.tools.measuring.comparing import measures_at, read_picture
from todome.tools.measuring.drawing import Batch
from todome.tools.measuring.evaluation import FLOWERS, carry_out, gigabytes, plan_for
from todome.tools.measuring.runs import EvaluationPlan, features_path, picture_path, read_results, times_path
from todome.tools.metrics import LPIPS, frechet_distance, high_frequency, mse, psnr, ssim
from todome.tools.pictures import read_texts

pytestmark = pytest.mark.filterwarnings("ignore:FID is biased upwards by few pictures")
QUICK: dict[str, Any] = {"pictures": 1, "steps": 1}


def test_a_new_run(tmp_path, flowers, calls, lpips):
    run = carry_out(PLAN, tmp_path / "run", pipe=flowers, lpips=lpips)
    assert calls == BATCHES * 2
    assert [(row.method, row.pictures, row.steps) for row in run.rows] == [("dense", 3, 2), ("todome:2", 3, 2)]
    names = sorted(str(path.relative_to(run.folder)) for path in run.folder.rglob("*") if path.is_file())
    drawn = [f"pictures/32x32/{method}/0000{i}.png" for method in ("dense", "todome_2") for i in range(3)]
    assert names == [*drawn, "results.json", "run.json", "times/32x32/dense.json", "times/32x32/todome_2.json"]
    assert run.about["dtype"] == "float32"
    assert not patches_on(flowers.unet)


def test_from_a_notebook_with_a_pipeline_that_is_open(tmp_path, lpips):
    pipe = talking(tiny_pipeline(unet=small_unet()))
    run = todome.evaluate(pipe, ["a rose"], ["todome:2"], out=tmp_path / "run", lpips=lpips, sizes=[SIZE], **QUICK)
    drawn: dict[str, Any] = {"model": "StableDiffusionPipeline", "sizes": [SIZE], **QUICK}
    assert run.plan == EvaluationPlan(["a rose"], ["dense", "todome:2"], **drawn)
    assert [len(row.closeness.psnr) for row in run.rows] == [0, 1]
    assert not patches_on(pipe.unet)
    pipe.register_to_config(_name_or_path="some/flowers")
    named = todome.evaluate(pipe, ["a rose"], ["todome:2"], out=tmp_path / "named", lpips=lpips, **QUICK)
    assert (named.plan.model, named.plan.sizes) == ("some/flowers", (SIZE,))


def from_pictures() -> Any:
    return tiny_pipeline(unet=small_unet(), kind=StableDiffusionControlNetPipeline, controlnet=controlnet())


@pytest.mark.parametrize(
    ("model", "given", "kind", "told"),
    [
        (lambda: "todome-flowers", {"picture": 8}, TypeError, "picture=8 cannot be used. Allowed: the fields prompts,"),
        (lambda: "todome-flowers", {"prompts": "a rose"}, TypeError, "prompts='a rose' cannot be used."),
        (small_unet, {}, TypeError, "model='UNet2DConditionModel' cannot be used."),
        (from_pictures, {}, ValueError, "model='StableDiffusionControlNetPipeline' cannot be used."),
        (lambda: tiny_pipeline(unet=small_unet()), {"loras": ["a.safetensors"]}, ValueError, "loras=['a.safetensors']"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(tmp_path, model, given, kind, told):
    call = lambda: todome.evaluate(model(), **{"prompts": ["a rose"], **given}, out=tmp_path / "run")  # noqa: E731
    assert refusal(call, kind).startswith(told)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("prompts", ["a rose", ["a rose", "a tulip"]])
def test_what_cannot_be_tuned_is_refused(prompts: Any):
    with pytest.raises((TypeError, ValueError), match=r"^(prompts='a rose'|model='StableDiffusionControlNetPipeline')"):
        todome.tune(from_pictures() if isinstance(prompts, list) else "todome-flowers", prompts, keep=40)


def test_the_time_is_that_of_all_batches(finished):
    dense, reduced = read_results(finished).rows
    times = json.loads(times_path(finished, SIZE, "todome:2").read_text())
    assert [(batch["first"], batch["pictures"], batch["gigabytes"]) for batch in times] == [(0, 2, None), (2, 1, None)]
    assert reduced.seconds == pytest.approx(sum(batch["seconds"] for batch in times) / 3)
    assert reduced.speedup == pytest.approx(dense.seconds / reduced.seconds)
    assert dense.speedup == 1


def test_the_memory_is_that_of_a_full_batch():
    assert gigabytes([Batch(0, 4, 1.0, 8.0), Batch(4, 4, 1.0, 8.5), Batch(8, 1, 1.0, 5.0)]) == 8.5 / 4


def test_closeness_is_measured_on_the_files(finished, lpips):
    def pictures(method: str) -> torch.Tensor:
        return torch.stack([read_picture(picture_path(finished, SIZE, method, i)) for i in range(3)]) / 255

    made, dense, found = pictures("todome:2"), pictures("dense"), read_results(finished).rows[1].closeness
    assert found.psnr == pytest.approx(psnr(made, dense).tolist(), rel=1e-4)
    assert found.ssim == pytest.approx(ssim(made, dense).tolist(), rel=1e-4)
    assert found.detail == pytest.approx(high_frequency(made, dense).tolist(), rel=1e-4)
    assert found.mse == pytest.approx(mse(made, dense).tolist(), rel=1e-4)
    assert found.lpips == pytest.approx(LPIPS.load(lpips)(made, dense).tolist(), rel=1e-4)
    assert found.ms_ssim == ()
    assert 10 < min(found.psnr) < max(found.psnr) < 60


def test_pictures_carry_what_they_were_drawn_with(finished):
    path = picture_path(finished, SIZE, "todome:2", 2)
    settings = settings_of(path)
    assert (settings.prompt, settings.seed, settings.steps, settings.guidance) == ("a rose", 2, 2, 3.0)
    assert settings.reduction == Downsample(2)
    assert read_texts(path)["method"] == "todome:2"


@pytest.mark.parametrize("out", ["", "notes.txt", "/proc/run", "notes.txt/run"])
def test_a_folder_that_cannot_be_the_runs_is_refused_before_anything_is_drawn(tmp_path, flowers, calls, out):
    (tmp_path / "notes.txt").write_text("a user's own")
    assert refusal(lambda: carry_out(PLAN, tmp_path / out, pipe=flowers), OSError).startswith("out='")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert calls == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"prompts": []}, "prompts=[] cannot be used."),
        ({"pictures": 0}, "pictures=0 cannot be used. Allowed: a whole number of at least 1."),
        ({"pictures": 1, "real": "x"}, "pictures=1 cannot be used. Allowed: a whole number of at least 2."),
        ({"batch": 0}, "batch=0 cannot be used."),
        ({"steps": 0}, "steps=0 cannot be used."),
    ],
    ids=str,
)
def test_plans_that_cannot_be_drawn(tmp_path, flowers, changed, told):
    assert refusal(lambda: carry_out(replace(PLAN, **changed), tmp_path / "run", pipe=flowers)).startswith(told)
    assert not list(tmp_path.iterdir())


def test_a_size_the_model_cannot_draw_is_refused_before_the_first_picture(tmp_path, flowers, lpips, calls):
    plan = replace(PLAN, sizes=(SIZE, (33, 32)))
    told = "Width 33 does not work: this model needs multiples of 8. Try 32 or 40."
    assert refusal(lambda: carry_out(plan, tmp_path, pipe=flowers, lpips=lpips)) == told
    assert calls == []


def test_plans_have_what_suits_the_model():
    plan = plan_for()
    assert (plan.prompts, plan.sizes, plan.guidance, plan.steps) == (FLOWERS, ((256, 256),), 3.0, 25)
    assert plan_for("any", ["a"], steps=None).sizes == ()
    assert refusal(lambda: plan_for("any")).startswith("prompts=None cannot be used.")


def test_without_the_weights_of_lpips_there_is_a_note(again, monkeypatch):
    monkeypatch.delenv("TODOME_LPIPS", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.warns(UserWarning, match=r"^LPIPS is left out\. LPIPS has no weights"):
        run = again(lpips=None)
    assert run.rows[1].closeness.lpips == ()


def test_large_pictures_have_every_measure():
    assert list(measures_at((176, 176), LPIPS())) == ["psnr", "ssim", "ms_ssim", "lpips", "detail", "mse"]
    assert list(measures_at((176, 168), None)) == ["psnr", "ssim", "detail", "mse"]
    assert list(measures_at((8, 8), LPIPS())) == ["psnr", "mse"]


def test_equal_pictures_and_flat_ones_can_be_written_as_json(folder, again):
    for method in ("dense", "todome:2"):
        for i in range(3):
            Image.new("RGB", SIZE, "grey").save(picture_path(folder, SIZE, method, i))
    found = again().rows[1].closeness
    assert (found.psnr, found.mse, found.detail) == ((100.0,) * 3, (0.0,) * 3, ())
    assert "NaN" not in (folder / "results.json").read_text()


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
    assert not patches_on(flowers.unet)
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


REAL = torch.rand(5, 2048, generator=torch.Generator().manual_seed(0))


def features_of(folder: Path, method: str) -> torch.Tensor:
    return load_file(features_path(folder, SIZE, method))["features"]


@pytest.mark.thorough
def test_fid_to_dense(folder, again, inception):
    with pytest.warns(UserWarning, match="compare it only between sets of 3"):
        dense, reduced = again(fid=True, inception=inception).rows
    seen = [features_of(folder, method) for method in ("todome:2", "dense")]
    assert [tuple(some.shape) for some in seen] == [(3, 2048)] * 2
    assert (dense.fid, reduced.fid) == (None, frechet_distance(*seen))
    save_file({"features": REAL[:3]}, features_path(folder, SIZE, "dense"))
    assert again(fid=True, inception=inception).rows[1].fid == frechet_distance(seen[0], REAL[:3])  # not seen twice
    picture_path(folder, SIZE, "dense", 0).unlink()
    assert again(fid=True, inception=inception).rows[1].fid == reduced.fid  # but drawn again, they are


@pytest.fixture
def run(tmp_path: Path, flowers: Any, lpips: Path, inception: Path) -> Any:
    """Evaluates with the FID to something real."""
    files = {"pipe": flowers, "lpips": lpips, "inception": inception}
    return lambda real: carry_out(replace(PLAN, real=str(real)), tmp_path / "run", **files)


@pytest.mark.thorough
def test_fid_to_a_folder_of_real_pictures(tmp_path, run):
    (tmp_path / "real/more").mkdir(parents=True)
    for i, name in enumerate(["a.jpg", "more/b.png", "c.webp"]):
        Image.new("L", (20 + i, 30), 40 * i).save(tmp_path / "real" / name)
    (tmp_path / "real/notes.txt").write_text("no picture")
    rows = run(tmp_path / "real").rows
    real = tmp_path / "run/features/real.safetensors"
    seen = load_file(real)["features"]
    assert seen.shape == (3, 2048)
    made = [features_of(tmp_path / "run", row.method) for row in rows]
    assert [row.fid for row in rows] == [frechet_distance(one, seen) for one in made]
    save_file({"features": REAL[:3]}, real)  # known the second time
    assert run(tmp_path / "real").rows[0].fid == frechet_distance(made[0], REAL[:3])


@pytest.mark.thorough
def test_fid_to_a_file_of_features(tmp_path, run):
    save_file({"features": REAL}, tmp_path / "real.safetensors")
    found = run(tmp_path / "real.safetensors").rows[0].fid
    assert found == frechet_distance(features_of(tmp_path / "run", "dense"), REAL)


@pytest.mark.parametrize("name", ["none", "none.safetensors", "one"])
def test_no_real_pictures(tmp_path, run, calls, name):
    (tmp_path / "one").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "one/a.png")
    told = refusal(lambda: run(tmp_path / name))
    assert told.startswith(f"real={str(tmp_path / name)!r} cannot be used.")
    assert f"{int(name == 'one')} pictures are there" in told
    assert calls == []
