"""What the tests of the page share: pages in a process of their own, for a server leaves threads behind."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from fresh import DRAWING, python_after


class Pages(NamedTuple):
    open: str
    locked: str  # for everybody with the password
    files: Path  # where the process puts what it makes for a while

    def pictures(self) -> list[Path]:
        return sorted(path for path in self.files.rglob("*.png") if path.parent.name != "example")

    def log(self) -> str:
        return (self.files / "log").read_text()


@contextmanager
def started(folder: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A process whose temporary files are in a folder, with a log beside them. It is gone afterwards."""
    surroundings = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    command, pipe = [python_after(DRAWING), *words], subprocess.PIPE
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=surroundings)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("served")
    with started(folder, str(Path(__file__).with_name("pages_process.py"))) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        assert len(said) == 2, (folder / "log").read_text()
        yield Pages(*said, folder)
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert not list(folder.glob("todome-app-*"))
