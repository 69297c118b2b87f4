"""What the tests of batches share: a tiny model on disk, rows, and a way to draw them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made import SMALL
from typer.testing import CliRunner, Result

from todome.tools.commands import app


@pytest.fixture
def batch(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs `todome batch` in an empty folder, with the tiny model."""
    monkeypatch.chdir(tmp_path)

    def run(*words: Any) -> Result:
        line = ["batch", "--model", str(model), *SMALL, *map(str, words)]
        return CliRunner().invoke(app, line, prog_name="todome")

    return run
