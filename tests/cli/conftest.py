"""What the tests of the command share: a way to run it, and small pipelines on disk."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import originals
import pytest
from typer.testing import CliRunner, Result
from zoo import small_unet

from todome.tools.commands import app
from todome.tools.measuring.subjects import ARCHITECTURES


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs `todome` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, list(map(str, words)), prog_name="todome")


@pytest.fixture
def refused(run: Callable[..., Result]) -> Callable[..., str]:
    """What `todome` says, without its frame, where it is to refuse."""

    def told(*words: Any, code: int = 1) -> str:
        result = run(*words)
        assert result.exit_code == code, result.output
        assert not result.stdout
        text = re.sub(r"[╭─╮│╰╯\s]+", " ", result.stderr).strip()
        return text.split("Error: " if code == 1 else "Error ", 1)[1]

    return told


@pytest.fixture
def opened_once(flowers: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """For what is not about opening: the command finds the embedded pipeline open already."""
    monkeypatch.setattr("todome.tools.pipelines.open_pipeline", lambda *_, **__: flowers)
    return flowers


@pytest.fixture
def small_sd15(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sd15` means a small UNet."""
    monkeypatch.setitem(ARCHITECTURES, "sd15", {**small_unet().config})


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with checkpoints in single files: sd1.safetensors, sd2.safetensors and sdxl.safetensors."""
    path = tmp_path_factory.mktemp("checkpoints")
    for name in ("sd1", "sd2", "sdxl"):
        getattr(originals, name)().write(path / f"{name}.safetensors")
    return path
