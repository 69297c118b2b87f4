"""The counter-example: a small transformer is trained, goes on, and is compared with fewer keys and fewer steps."""

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import todome_flowers
import torch
from diffusion import Size
from PIL import Image

from todome import Downsample

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def transformer() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("transformer")
    for name in ("transformer", "transformer_model", "tables"):
        sys.modules.pop(name, None)


def words(photos: Path, run: Path, **options: Any) -> list[str]:
    given = {"run": run, "out": run / "found.json", "width": 64, "layers": 2, "sizes": 32, "pictures": 2, **options}
    return ["transformer.py", str(photos), "--eager", *(str(w) for k, v in given.items() for w in (f"--{k}", v))]


@pytest.mark.thorough
def test_it_is_trained_once_and_compared(transformer, ready, photos, tmp_path, monkeypatch):
    run = shutil.copytree(ready, tmp_path / "run")
    stages = [transformer.Stage(Size(32, 32, 2, 1), 0.5), transformer.Stage(Size(64, 64, 2, 1), 1.0)]
    monkeypatch.setattr("sys.argv", words(photos, run, seconds=0.6, sheet=run / "sheet.jpg"))
    transformer.main(stages, steps=4, controls=(2,))
    found = json.loads((run / "found.json").read_text())
    assert found["about"]["weights"] == todome_flowers.fingerprint()
    assert found["trained"]["iterations"] > 1
    methods = [row["method"] for row in found["rows"]]
    assert methods[:4] == ["dense", "todo:2", "todome:2", "todome:4"]
    assert "dense:2" in methods
    assert [row["equal_cost"] for row in found["rows"][1:]].count(True) == 1
    with Image.open(run / "sheet.jpg") as sheet:
        assert json.loads(sheet.info["comment"]) == {"weights": todome_flowers.fingerprint()}
    first, *_ = importlib.import_module("tables").transformer(run / "found.json")
    assert [*first] == ["what attention is given", "32 px"]
    (run / "found.json").unlink()
    transformer.main(stages, steps=4, controls=(2,))
    again = json.loads((run / "found.json").read_text())
    assert again["trained"] == found["trained"]
    assert [row.get("psnr") for row in again["rows"]][:4] == [row.get("psnr") for row in found["rows"]][:4]


@torch.no_grad()
def test_keys_are_those_that_todome_keeps(transformer):
    """Those of the table, another one at every step. As the model begins, it says nothing."""
    torch.manual_seed(0)
    model = transformer.Transformer(3, width=64, layers=2).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    z, t, labels = torch.randn(1, 4, 8, 8), torch.ones(1), torch.ones(1).long()
    made = [model(z, t, labels, transformer.rows_of(Downsample(2), step, torch.device("cpu"))) for step in (0, 1, 4)]
    assert not made[0].allclose(made[1])
    assert made[0].equal(made[2])  # each key has its turn in four steps
    every = lambda layer, grid: torch.arange(64)  # noqa: E731
    assert model(z, t, labels, every).allclose(model(z, t, labels), atol=1e-5)
