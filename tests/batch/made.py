"""Rows of a batch, its command line, what it has made, and a worker."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from fresh import DRAWING, python_after
from PIL import Image

from todome.tools.batch.folder import LOCK
from todome.tools.engines import Place

SMALL = ("--size", "32", "--steps", "2", "--factor", "2", "--device", "cpu")


def command(model: Path, *words: Any) -> list[str]:
    """The same as the line of a process of its own."""
    return [python_after(DRAWING), "-m", "todome", "batch", "--model", str(model), *SMALL, *map(str, words)]


def index(folder: Path | str = "out") -> list[dict[str, Any]]:
    """Its whole lines: the last may be half written."""
    whole = (Path(folder) / "index.jsonl").read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.split(b"\n") if line]


def pixels(record: dict[str, Any], folder: Path | str = "out") -> Any:
    with Image.open(Path(folder) / record["file"]) as picture:
        return np.asarray(picture)


def write_prompts(count: int, path: Path = Path("prompts.txt")) -> Path:
    path.write_text("".join(f"rose number {number}\n" for number in range(count)))
    return path


def wait_for(condition: Callable[[], bool], process: Any, seconds: float = 120) -> None:
    """Until the condition holds, while the process runs."""
    patience = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < patience
        time.sleep(0.02)


def kill(process: Any, out: Path = Path("out")) -> None:
    """By SIGKILL; returns when nobody draws into its folder any more: the fork behind the process ends after it."""
    process.kill()
    with FileLock(out / LOCK, timeout=60):
        pass


class Picky:
    """A worker that says where it is, and refuses an item."""

    def open(self, place: Place) -> None:
        self.place = place

    def close(self) -> None:
        pass

    def work(self, item: int) -> str:
        if item == 3:
            raise ValueError("Three is too much.")
        return f"{item} in {os.getcwd()} on {self.place.device}"
