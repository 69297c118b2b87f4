"""What the tests of the page share: pages in a process of their own, for a server leaves threads behind."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from asking import started


class Pages(NamedTuple):
    open: str
    locked: str  # for everybody with the password
    files: Path  # where the process puts what it makes for a while

    def pictures(self) -> list[Path]:
        return sorted(path for path in self.files.rglob("*.png") if path.parent.name != "example")

    def log(self) -> str:
        return (self.files / "log").read_text()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("served")
    with started(folder, str(Path(__file__).with_name("pages_process.py"))) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        assert len(said) == 2, (folder / "log").read_text()
        yield Pages(said[0], said[1], folder)
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert not list(folder.glob("todome-app-*"))
