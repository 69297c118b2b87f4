"""Ctrl+C and SIGTERM end a command with one line at any time, and leave nothing half-written. With real signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fresh import DRAWING, TORCH, heed_ctrl_c, python_after

SCRIPT = [str(Path(sys.executable).with_name("todome"))]
MODULE = [sys.executable, "-m", "todome"]
WORDS = ["generate", "a rose", "-o", "rose.png", "--device", "cpu", "--size", "64", "--steps", "1"]
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
    assert ended([*command, *WORDS], tmp_path, PYTHONPATH=path) == (STATUS[number], "", "Interrupted.\n")


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
    code, out, err = ended([python, "-c", script, *WORDS], tmp_path)
    assert (code, out) == (STATUS[number], "")
    assert err.startswith("Interrupted.")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
