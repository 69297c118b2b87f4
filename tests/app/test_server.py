"""What a page would not send is refused in a sentence, and nothing but the page can be had from the server."""

import socket
import time
from contextlib import ExitStack
from urllib.parse import quote

import httpx
import numpy as np
import pytest
import todome_flowers
from asking import OFFER, SMALL, call, drawn, event_of, events, join
from PIL import Image

from todome.tools.app.server import WAITING, Address
from todome.tools.generate import make_picture, settings_of

pytestmark = pytest.mark.xdist_group("pages")


def test_it_listens_here_and_opens_no_tunnel(pages):
    """Though the environment says otherwise."""
    assert pages.open.startswith("http://127.0.0.1:")
    config = httpx.get(f"{pages.open}config")
    assert "gradio.live" not in config.text
    assert not [found for found in config.json()["dependencies"] if found["api_visibility"] == "public"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"width": 10**9}, "width=1000000000 cannot be used. Allowed: a whole number from 64 to 256."),
        ({"width": 100}, "Width 100 does not work: this model needs multiples of 8."),
        ({"factor": 40}, "factor=40 cannot be used. Allowed: a number from 1 to 16."),
        ({"seed": -3}, "seed=-3 cannot be used."),
        ({"start": 0.75, "stop": 0.5}, "start=0.75 cannot be used. Allowed: at most stop, which is 0.5"),
        ({"prompt": "x" * 1001}, "a text of at most 1000 characters"),
        ({"method": "../../etc/passwd"}, "method='../../etc/passwd' cannot be used."),
    ],
    ids=str,
)
def test_what_the_controls_cannot_be_set_to_is_answered_with_a_sentence(pages, changes, text):
    """And leaves nothing in the log of the server."""
    before = pages.pictures()
    assert text in drawn(pages.open, SMALL._replace(**changes)).replace("&#39;", "'")
    assert pages.pictures() == before
    assert "Traceback" not in pages.log()


def test_a_tuning_that_the_controls_cannot_be_set_to(pages):
    data = ["close", 400, 1.2, 5, "", *SMALL]
    body = {"data": data, "fn_index": event_of(pages.open, "tune", "click"), "session_hash": "tuner"}
    httpx.post(f"{pages.open}gradio_api/queue/join", json=body).raise_for_status()
    with events(pages.open, "tuner") as said:
        assert "closeness=400 cannot be used. Allowed: a number from 25 to 60." in "\n".join(said)
    assert "Traceback" not in pages.log()


@pytest.mark.parametrize("at", [None, "1", -1, 99, [1]], ids=str)
def test_a_run_that_nobody_has(pages, at):
    said = call(pages.open, "history", "select", [], event_data={"index": at, "value": None})
    assert "no longer kept" in said.text


@pytest.mark.parametrize(
    "host", ["rebound.example", "127.0.0.1.rebound.example", "localhost.example:7860", "flowers.example", ""]
)
def test_a_name_of_somebody_else_is_refused(pages, host):
    assert httpx.get(f"{pages.open}config", headers={"Host": host}).status_code == 400


def test_names_of_the_page():
    page, machine = Address("lab.example", names=("Flowers.example",)), socket.gethostname()
    known = (
        "localhost",
        "LocalHost:7860",
        "127.0.0.1:1",
        "[::1]:7860",
        "192.0.2.7:7860",
        machine,
        f"{machine}.local:1",
    )
    assert all(map(page.is_known, (*known, "flowers.example", "lab.example:7860")))
    assert not any(map(page.is_known, ("rebound.example", "192.0.2.7.rebound.example", "[", "[::1", "", "flowers")))


def test_another_site_cannot_post(pages):
    """A form or a script of another site, which needs no leave to send, only to read the answer."""
    for origin in ("https://rebound.example", "null", "http://["):
        assert join(pages.open, SMALL, "someone", Origin=origin).status_code == 403
    own = join(pages.open, SMALL._replace(steps=-1), "someone", Origin=pages.open.rstrip("/"))
    assert own.status_code == 200
    asked = httpx.options(f"{pages.open}gradio_api/queue/join", headers={"Origin": "https://rebound.example"})
    assert "access-control-allow-origin" not in asked.headers


def test_the_picture_is_the_file_and_no_other_file_can_be_read(pages, tmp_path):
    name = "7-7-script-alert-1-script-5-todome.png"
    said = drawn(pages.open, SMALL._replace(prompt="{{ 7 * 7 }} <script>alert(1)</script>"))
    assert name in said
    assert "&lt;script&gt;" in said
    assert "<b>{{ 7 * 7 }} <script>" not in said
    (made,) = [path for path in pages.pictures() if path.name == name]
    got = httpx.get(f"{pages.open}gradio_api/file={quote(str(made))}")
    assert got.content == made.read_bytes()
    assert got.headers["content-security-policy"].startswith("default-src 'self'")
    assert settings_of(made).seed == 5
    beside = tmp_path / "other.png"
    beside.write_bytes(got.content)
    weights = todome_flowers.path() / "unet/diffusion_pytorch_model.safetensors"
    outside = ("/etc/passwd", beside, weights, f"{made.parent}/../../../etc/passwd", "http://example.com")
    for path in outside:
        for ask in ("file=", "file/", "proxy=", "stream/"):
            said = httpx.get(f"{pages.open}gradio_api/{ask}{quote(str(path), safe='/:')}")
            assert said.status_code in (400, 403, 404), (path, ask)


def test_bodies_that_are_too_large(pages):
    assert drawn(pages.open, SMALL._replace(prompt="x" * 2 * 10**7)) == "This is more than the page would send."
    pieces = httpx.post(f"{pages.open}gradio_api/queue/join", content=iter([b"{}"]))
    assert pieces.status_code == 413
    files = {"files": ("a.png", b"12345")}
    assert httpx.post(f"{pages.open}gradio_api/upload", files=files).status_code == 413
    assert not list(pages.files.rglob("a.png"))


def test_a_password(pages):
    url = pages.locked
    assert httpx.get(f"{url}config").status_code == 401
    assert httpx.post(f"{url}gradio_api/queue/join", json={}).status_code == 401
    assert httpx.get(f"{url}gradio_api/file={next(pages.files.rglob('full.png'))}").status_code == 401
    with httpx.Client() as tab:
        assert tab.post(f"{url}login", data={"username": "ada", "password": "byron"}).status_code == 400
        tab.post(f"{url}login", data={"username": "ada", "password": "lovelace"}).raise_for_status()
        assert tab.get(f"{url}config").status_code == 200


@pytest.mark.thorough
def test_a_full_queue_says_so_and_a_tab_that_leaves_makes_room(pages, flowers):
    """Whoever leaves in the middle of a drawing leaves nothing; the next one is drawn as if it were the first."""
    url, before, long = pages.open, len(pages.pictures()), SMALL._replace(width=256, height=256, steps=60, seed=9)
    with ExitStack() as streams:
        held = []  # what is thrown away would close its stream
        for at in range(WAITING + 1):
            alive = streams.enter_context(httpx.stream("GET", f"{url}gradio_api/heartbeat/waits-{at}")).iter_raw()
            next(alive)
            assert join(url, long, f"waits-{at}").status_code == 200
            said = streams.enter_context(events(url, f"waits-{at}"))
            assert any("Drawing with" if at == 0 else "estimation" in line for line in said)
            held += [alive, said]
        full = join(url, long, "late")
        assert full.status_code == 503
        assert "Queue is full" in full.text
        assert "no longer kept" in call(url, "history", "select", [], event_data={"index": 99, "value": None}).text
    dense = SMALL._replace(method="dense", seed=11)
    for _ in range(200):  # until the server has noticed that all are gone
        if "a-rose-11-dense.png" in drawn(url, dense, "next"):
            break
        time.sleep(0.2)
    assert len(pages.pictures()) == before + 1
    with Image.open(next(path for path in pages.pictures() if path.name == "a-rose-11-dense.png")) as picture:
        found = np.asarray(picture)
    assert (found == np.asarray(make_picture(dense.settings(OFFER), flowers).picture)).all()
