"""The FID of an evaluation: to the dense pictures, to a folder of real ones, to their features."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from small_evaluation import PLAN, SIZE, refusal

from todome.tools.measuring.evaluation import carry_out
from todome.tools.measuring.runs import features_path, picture_path
from todome.tools.metrics import frechet_distance

pytestmark = pytest.mark.filterwarnings("ignore:FID is biased upwards by few pictures")
REAL = torch.rand(5, 2048, generator=torch.Generator().manual_seed(0))


def features_of(folder: Path, method: str) -> torch.Tensor:
    return load_file(features_path(folder, SIZE, method))["features"]


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
