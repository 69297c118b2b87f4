"""How commands end early, in processes of their own: a signal at any time, a reader that leaves, a full disk."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fresh import DRAWING, TORCH, heed_ctrl_c, python_after

GENERATE = ["generate", "a rose", "-o", "rose.png", "--device", "cpu", "--size", "64"]


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the command in a folder. None is left running."""
    started: list[subprocess.Popen[str]] = []

    def begin(folder: Path, *options: str, **streams: Any) -> subprocess.Popen[str]:
        common: dict[str, Any] = {"preexec_fn": heed_ctrl_c, **streams}
        started.append(
            subprocess.Popen(
                [python_after(DRAWING), "-m", "todome", *GENERATE, *options], cwd=folder, text=True, **common
            )
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def shown_on(terminal: int, until: str = "") -> str:
    """What a process writes to its terminal, until it says something or ends."""
    seen = b""
    while not (until and until.encode() in seen) and select.select([terminal], [], [], 120)[0]:
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # the end of a terminal, on Linux
            break
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode(errors="ignore"))


def terminal_options() -> tuple[int, dict[str, Any]]:
    """A terminal, and what a process needs to write its errors there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))  # without a width nothing is shown
    return ours, {"stderr": theirs, "env": os.environ | {"TERM": "xterm"}}


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = 120) -> None:
    """Until the file is there."""
    patience = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < patience:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    assert path.exists()


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.thorough),
        pytest.param(signal.SIGHUP, 143, marks=pytest.mark.thorough),
    ],
)
def test_a_signal_keeps_what_is_done_and_says_so(start, tmp_path, number, status):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start(tmp_path, "--count", "300", "--steps", "4", **pipes)
    wait_for(tmp_path / "rose-2.png", process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    kept = left(tmp_path)
    assert process.returncode == status
    assert 2 <= len(kept) < 300
    ordered = [f"rose-{i}.png" for i in range(1, len(kept) + 1)]
    assert sorted(ordered) == kept  # nothing half-written beside them
    assert err == f"Interrupted. Kept: {', '.join(ordered)}.\n"
    said = [line.split(":")[0] for line in out.splitlines()]
    assert said in (ordered, ordered[:-1])  # the last may have been written in that moment


@pytest.mark.thorough
def test_a_reader_that_leaves_is_no_error(start, tmp_path):
    with start(tmp_path, "--steps", "1", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""
    assert left(tmp_path) == ["rose.png"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 300 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_without_room_is_refused_first(start, small_disk):
    process = start(small_disk, "--size", "512", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("Error: There is no room in .: up to 0.9 MB are needed, and 0.3 MB are free. ")


@pytest.mark.thorough
def test_a_disk_that_is_full_in_the_end(start, small_disk):
    process = start(small_disk, "--count", "2", "--steps", "30", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(small_disk / "rose-1.png", process)
    (small_disk / "other").write_bytes(bytes(shutil.disk_usage(small_disk).free))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.startswith("Error: The disk is full. ")
    assert out.startswith("rose-1.png: ")
    assert left(small_disk) == ["other", "rose-1.png"]


def test_on_a_terminal_it_shows_what_it_does_and_the_time_left(start, tmp_path):
    """And in a pipe beside it nothing but the result."""
    terminal, options = terminal_options()
    process = start(tmp_path, "--steps", "15", stdout=subprocess.PIPE, **options)
    os.close(options["stderr"])
    shown = shown_on(terminal)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, shown
    assert "Loading todome-flowers" in shown
    assert re.search(r"Drawing rose\.png .* \d+/15 \d+:\d\d", shown)
    assert "Decoding rose.png" in shown
    assert out.startswith("rose.png: 64x64 pixels in ")
    assert "\x1b" not in out


SCRIPT = [str(Path(sys.executable).with_name("todome"))]
MODULE = [sys.executable, "-m", "todome"]
ONE_STEP = [*GENERATE, "--steps", "1"]
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
SENDING = """  # to the process itself, when it begins to import a module or to put a file in its place
import os, sys
def send(event, args):
    if event == {event!r} and {name!r} in map(str, args[:2]):
        os.kill(os.getpid(), {number})
sys.addaudithook(send)
"""


def ended(words: list[str], folder: Path, **variables: str) -> tuple[int, str, str]:
    options: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "preexec_fn": heed_ctrl_c}
    done = subprocess.run(words, cwd=folder, env=os.environ | variables, **options)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("command", "number", "module"),
    [
        (SCRIPT, signal.SIGINT, "numpy"),  # which torch imports, and does without
        (MODULE, signal.SIGTERM, "torch"),
        pytest.param(SCRIPT, signal.SIGTERM, "typer", marks=pytest.mark.thorough),
        pytest.param(MODULE, signal.SIGINT, "torch", marks=pytest.mark.thorough),
    ],
)
def test_while_the_command_itself_is_imported(tmp_path, command, number, module):
    (tmp_path / "sitecustomize.py").write_text(SENDING.format(event="import", name=module, number=int(number)))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert ended([*command, *ONE_STEP], tmp_path, PYTHONPATH=path) == (STATUS[number], "", "Interrupted.\n")


@pytest.mark.parametrize(
    ("number", "event", "name"),
    [
        (signal.SIGINT, "import", "diffusers"),
        (signal.SIGTERM, "os.rename", "rose.png"),
        pytest.param(signal.SIGTERM, "import", "transformers", marks=pytest.mark.thorough),
        pytest.param(signal.SIGTERM, "import", "todome_flowers", marks=pytest.mark.thorough),
    ],
)
def test_while_a_model_is_opened_and_a_picture_is_written(tmp_path, number, event, name):
    script = f"{SENDING.format(event=event, name=name, number=int(number))}\nfrom todome.tools.cli import main\nmain()"
    python = python_after(DRAWING if event == "os.rename" else TORCH)
    code, out, err = ended([python, "-c", script, *ONE_STEP], tmp_path)
    assert (code, out) == (STATUS[number], "")
    assert err.startswith("Interrupted.")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
