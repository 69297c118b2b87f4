"""`todome app` in a process of its own, as a user or a script starts it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fresh import DRAWING, python_after
from small_page import free_port


@dataclass
class PageProcess:
    """A page that is served: its address, its process, and the folder in which it makes its temporary ones."""

    url: str
    process: "subprocess.Popen[str]"
    files: Path

    def wait(self) -> str:
        """What the process printed before it ended. Generous: machines that run tests are busy."""
        return self.process.communicate(timeout=30)[0]

    def folders(self) -> list[Path]:
        return list(self.files.glob("todome-app-*"))

    def log(self) -> str:
        return (self.files / "log").read_text()


@contextmanager
def page_process(files: Path, *options: str) -> Iterator[PageProcess]:
    """Serves a page, with SIGINT ignored as a script with `&` or `nohup` starts it. It is gone afterwards."""
    command = [python_after(DRAWING), "-m", "todome", "app", "--device=cpu", f"--port={free_port()}", *options]
    surroundings = {**os.environ, "TMPDIR": str(files)}
    with (files / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=surroundings, preexec_fn=ignore_interrupts
        )
    assert process.stdout is not None
    try:
        said = process.stdout.readline().split()
        assert said[1:3] == ["is", "at"], (files / "log").read_text()
        assert process.stdout.readline() == "Ctrl+C ends it.\n"
        yield PageProcess(said[3], process, files)
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
