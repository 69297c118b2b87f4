"""Pages that are served by processes of their own, and what is asked of them, as their scripts would or otherwise."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from fresh import DRAWING, python_after

from todome.tools.app.form import Form, Offer
from todome.tools.generate import Settings

OFFER = Offer(Settings(device="cpu", dtype="float32"), 256, 60)
SMALL = Form("a rose", width=64, height=64, steps=2, seed=5)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def event_of(url: str, target: str, event: str) -> int:
    """The number by which the page calls what happens on an event of an element, where the server has a part in it."""
    config = httpx.get(f"{url}config").json()
    ids = {part["props"].get("elem_id"): part["id"] for part in config["components"]}
    return next(
        one["id"] for one in config["dependencies"] if [ids[target], event] in one["targets"] and one["backend_fn"]
    )


def call(url: str, target: str, event: str, data: Any, **more: Any) -> httpx.Response:
    """The answer to an event that waits for no drawing."""
    body = {"data": data, "fn_index": event_of(url, target, event), "session_hash": "someone", **more}
    return httpx.post(f"{url}gradio_api/run/predict", json=body)


def join(url: str, form: Form | Any, session: str, **headers: str) -> httpx.Response:
    """Asks for a drawing."""
    data = [None, None, None, *form] if isinstance(form, Form) else form
    body = {"data": data, "fn_index": event_of(url, "draw", "click"), "session_hash": session}
    return httpx.post(f"{url}gradio_api/queue/join", json=body, headers=headers)


@contextmanager
def events(url: str, session: str) -> Iterator[Iterator[str]]:
    """What a tab is told, for as long as it listens."""
    asked: dict[str, Any] = {"params": {"session_hash": session}, "timeout": 60}
    with httpx.stream("GET", f"{url}gradio_api/queue/data", **asked) as stream:
        yield (json.dumps(json.loads(line[6:])) for line in stream.iter_lines() if line.startswith("data:"))


def drawn(url: str, form: Form | Any, session: str = "someone") -> str:
    """Everything that is said to a tab that draws."""
    joined = join(url, form, session)
    if joined.status_code != 200:
        return joined.text
    with events(url, session) as said:
        return "\n".join(said)


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
