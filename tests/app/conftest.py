"""What the tests of the page share: three pages in a process of their own, for a server leaves threads behind."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from fresh import DRAWING, python_after
from page_process import ignore_interrupts

TEMPTING = {  # what would open the page to the world, and does nothing
    "GRADIO_ALLOWED_PATHS": "/",
    "GRADIO_MCP_SERVER": "true",
    "GRADIO_SERVER_NAME": "0.0.0.0",
    "GRADIO_SHARE": "true",
}


class Pages(NamedTuple):
    open: str
    locked: str  # for everybody with the password
    small: str  # with small limits
    files: Path  # where the process puts what it makes for a while


@pytest.fixture(scope="package")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("served")
    script = Path(__file__).parent / "three_pages.py"
    surroundings = {**os.environ, **TEMPTING, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log:
        command = [python_after(DRAWING), str(script)]
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=surroundings, preexec_fn=ignore_interrupts
        )
    assert server.stdout is not None
    try:
        locked, small = server.stdout.readline().split()
        said = server.stdout.readline().split()
        assert said[:3] == ["todome-flowers", "is", "at"], (folder / "log").read_text()
        assert server.stdout.readline() == "Ctrl+C ends it.\n"
        yield Pages(said[3], locked, small, folder)
        server.send_signal(signal.SIGINT)
        assert server.communicate(timeout=30)[0] == "Closed.\n"
        assert server.returncode == 0
        assert not list(folder.glob("todome-app-*"))
    finally:
        server.kill()
        server.stdout.close()
        server.wait()
