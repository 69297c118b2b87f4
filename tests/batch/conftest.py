"""What the tests of batches share: a tiny model on disk, rows, and a way to draw them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made import SMALL
from typer.testing import CliRunner, Result
from zoo import small_unet, talking, tiny_pipeline

from todome.tools.commands import app


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of random weights, which draws in milliseconds."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    talking(tiny_pipeline(unet=small_unet())).save_pretrained(path)
    return path


@pytest.fixture
def batch(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs `todome batch` in an empty folder, with the tiny model."""
    monkeypatch.chdir(tmp_path)

    def run(*words: Any) -> Result:
        line = ["batch", "--model", str(model), *SMALL, *map(str, words)]
        return CliRunner().invoke(app, line, prog_name="todome")

    return run
