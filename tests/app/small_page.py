"""A page with small limits, and what is asked of it."""

import json
import socket
from typing import Any

import httpx

from todome.tools.app.form import Form, Offer
from todome.tools.pipelines import EMBEDDED

LIMITS = {"side": 128, "steps": 40, "prompt": 80, "runs": 3}
LIMITS |= {"waiting": 2, "per_address": 2, "disk": 100_000, "sessions": 20}
OFFER = Offer((EMBEDDED,))
SMALL = Form("a rose", width=64, height=64, steps=2, seed=5, model=EMBEDDED)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def event_of(url: str, target: str, event: str = "click") -> int:
    """The number by which the page calls what happens on an event of an element."""
    config = httpx.get(f"{url}config").json()
    ids = {part["props"].get("elem_id"): part["id"] for part in config["components"]}
    return next(found["id"] for found in config["dependencies"] if [ids[target], event] in found["targets"])


def answer(url: str, number: int, data: Any, session: str = "someone", address: str = "127.0.0.1", **more: Any) -> str:
    """Everything the server says to a request, as the page would send it or otherwise.

    The address is that of a visitor who comes by way of a proxy on this machine.
    """
    body = {"data": data, "fn_index": number, "session_hash": session, **more}
    joined = httpx.post(f"{url}gradio_api/queue/join", json=body, headers={"X-Forwarded-For": address})
    if joined.status_code != 200:
        return joined.text
    with httpx.stream("GET", f"{url}gradio_api/queue/data", params={"session_hash": session}, timeout=60) as stream:
        return "\n".join(json.dumps(json.loads(line[6:])) for line in stream.iter_lines() if line.startswith("data:"))


def drawn(url: str, form: Form, session: str = "someone") -> str:
    """All that is said to somebody who draws. What shows that it was drawn is the name of its file:
    whoever is refused, and has no pictures yet, is shown those of the example.
    """
    return answer(url, event_of(url, "draw"), [*form], session)
