"""The way to the code that trained the embedded model, and runs of it on drawn flowers, from photos to a pipeline."""

import math
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from todome.tools.metrics import LPIPS

sys.path.append(str(Path(__file__).parents[2] / "flowers" / "train"))  # last, for its modules have common names

import autoencoder
import diffusion
import export
import prepare
from diffusion import Trainer
from photos import load_photos
from runs import COLOUR, EACH, STAGES, draw_flower, tiny_unet
from words import KINDS


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for kind, (_, plural) in KINDS.items():
        (folder / plural).mkdir()
        for i in range(EACH):
            draw_flower(COLOUR[kind], 90 + 5 * i).save(folder / plural / f"{i}.png")
    return folder


@pytest.fixture(scope="session")
def closeness(lpips: Path) -> LPIPS:
    return LPIPS.load(lpips).requires_grad_(False)


@pytest.fixture(scope="session")
def ready(photos: Path, closeness: LPIPS, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder in which everything is done but diffusion."""
    run = tmp_path_factory.mktemp("ready") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["prepare.py", str(photos), "--run", str(run), "--device", "cpu"])
        prepare.main()
    torch.manual_seed(0)
    autoencoder.train(load_photos(sorted(photos.glob("*/*"))), closeness, run, iterations=2, batch=2)
    return run


@pytest.fixture(scope="session")
def trained(ready: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of the real networks from the first stage to the last."""
    run = tmp_path_factory.mktemp("trained") / "run"
    shutil.copytree(ready, run)
    trainer = Trainer(run, "cpu")
    diffusion.train(trainer, STAGES, photos, math.inf)
    trainer.save()
    yield run
    shutil.rmtree(run)  # a quarter of a gigabyte


@pytest.fixture(scope="session")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "pipeline"
    export.export(export.assemble(trained), folder)
    return folder


@pytest.fixture
def run(ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ready for diffusion, with a UNet that takes no time."""
    monkeypatch.setattr(diffusion, "make_unet", tiny_unet)
    return shutil.copytree(ready, tmp_path / "run")
