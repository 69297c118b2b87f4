"""The FID of an evaluation: to the dense pictures, to a folder of real ones, to their features."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from small_evaluation import PLAN, SIZE, refusal

from todome.tools.measuring.evaluation import carry_out
from todome.tools.measuring.runs import features_path, picture_path
from todome.tools.metrics import Inception, frechet_distance

FEW = r"^FID is biased upwards by few pictures: compare it only between sets of 3, as these are\. It is meant for 2048"


def test_fid_to_dense(folder, again, inception, monkeypatch):
    with pytest.warns(UserWarning, match=FEW):
        dense, reduced = again(fid=True, inception=inception).rows
    seen = [load_file(features_path(folder, SIZE, method))["features"] for method in ("todome:2", "dense")]
    assert [tuple(some.shape) for some in seen] == [(3, 2048)] * 2
    assert (dense.fid, reduced.fid) == (None, frechet_distance(*seen))
    monkeypatch.setattr(Inception, "forward", None)  # nothing is looked at twice
    with pytest.warns(UserWarning, match=FEW):
        assert again(fid=True, inception=inception).rows[1].fid == reduced.fid


REAL = torch.rand(5, 8, generator=torch.Generator().manual_seed(0))


MADE = torch.rand(3, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def glances(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pictures Inception was shown, each time; what it sees of five or of three is known."""
    seen: list[int] = []

    def features(pictures: Any, network: Any, device: Any) -> torch.Tensor:
        seen.append(sum(len(some) for some in pictures))
        return {5: REAL, 3: MADE}[seen[-1]]

    monkeypatch.setattr("todome.tools.measuring.comparing.features", features)
    monkeypatch.setattr(Inception, "find", Inception)
    return seen


def test_fid_to_a_folder_of_real_pictures(tmp_path, flowers, lpips, glances):
    names = ["a.jpg", "more/b.png", "c.webp", "d.png", "e.bmp"]
    for i, name in enumerate(names):
        (tmp_path / "real/more").mkdir(parents=True, exist_ok=True)
        Image.new("L", (20 + i, 30), 40 * i).save(tmp_path / "real" / name)
    (tmp_path / "real/notes.txt").write_text("no picture")
    plan = replace(PLAN, real=str(tmp_path / "real"))
    for looked in ([5, 3, 3], []):  # the second time everything is known
        glances.clear()
        with pytest.warns(UserWarning, match=FEW):
            run = carry_out(plan, tmp_path / "run", pipe=flowers, lpips=lpips)
        assert glances == looked
        assert [row.fid for row in run.rows] == [frechet_distance(MADE, REAL)] * 2


def test_fid_to_a_file_of_features_and_of_pictures_that_are_drawn_again(tmp_path, flowers, lpips, glances):
    save_file({"features": REAL}, tmp_path / "real.safetensors")
    plan = replace(PLAN, real=str(tmp_path / "real.safetensors"))
    with pytest.warns(UserWarning, match=FEW):
        assert carry_out(plan, tmp_path / "run", pipe=flowers, lpips=lpips).rows[0].fid == frechet_distance(MADE, REAL)
    picture_path(tmp_path / "run", SIZE, "dense", 0).unlink()
    with pytest.warns(UserWarning, match=FEW):
        carry_out(plan, tmp_path / "run", pipe=flowers, lpips=lpips)
    assert glances == [3, 3, 3]


@pytest.mark.parametrize("name", ["none", "none.safetensors", "one"])
def test_no_real_pictures(tmp_path, flowers, lpips, glances, calls, name):
    (tmp_path / "one").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "one/a.png")
    plan = replace(PLAN, real=str(tmp_path / name))
    with pytest.warns(UserWarning, match=FEW):
        told = refusal(lambda: carry_out(plan, tmp_path / "run", pipe=flowers, lpips=lpips))
    allowed = "Allowed: a folder with pictures, or a .safetensors file with the tensor `features`."
    found = f"{int(name == 'one')} pictures are there, and FID needs two at the least."
    assert told == f"real={str(tmp_path / name)!r} cannot be used. {allowed} {found}"
    assert calls == []
