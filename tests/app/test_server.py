"""What a page would not send is refused, and nothing but the page can be had from the server."""

import json
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import pytest
import todome_flowers
from PIL import Image
from small_page import OFFER, SMALL, answer, drawn, event_of

from todome.tools.app.limits import Limits
from todome.tools.generate import Settings, make_picture, settings_of


def pictures(pages) -> list[Path]:
    return sorted(path for path in pages.files.rglob("*.png"))


def test_it_listens_here_and_opens_no_tunnel(pages):
    """Though the environment says otherwise."""
    assert pages.open.startswith("http://127.0.0.1:")
    config = httpx.get(f"{pages.open}config").json()
    assert "gradio.live" not in json.dumps(config)
    assert config["footer_links"] == []
    assert not [found for found in config["dependencies"] if found["api_visibility"] != "private"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"width": 10**9}, "Value 1000000000 is greater than maximum value 128."),
        ({"height": "64; rm -rf"}, '"success": false'),
        ({"width": 72.5}, "it must be a whole number from 64 to 128"),
        ({"width": 100}, "Width 100 does not work: this model needs multiples of 8. Try 96 or 104."),
        ({"steps": 10**6}, "Value 1000000 is greater than maximum value 40."),
        ({"prompt": "x" * 81}, "at most 80 characters long, and it has 81"),
        ({"scheduler": "no-such"}, "no-such"),
        ({"method": "../../etc/passwd"}, "../../etc/passwd"),
        ({"factor": 40}, "Factor 40 does not work: it must be a number from 1 to 16. Try 16."),
        ({"start": 0.75, "stop": 0.5}, "start=0.75 cannot be used. Allowed: at most stop, which is 0.5"),
        ({"seed": -3}, "Seed -3 does not work"),
    ],
    ids=str,
)
def test_settings_that_the_page_does_not_offer(pages, changes, text):
    before = pictures(pages)
    said = drawn(pages.open, SMALL._replace(**changes))
    assert text in said
    assert "Traceback" not in said
    assert pictures(pages) == before


@pytest.mark.parametrize("data", [[], "a", [*SMALL][:-1], {"a": 1}], ids=str)
def test_requests_of_another_shape(pages, data):
    before = pictures(pages)
    assert "Traceback" not in answer(pages.open, event_of(pages.open, "draw"), data)
    assert pictures(pages) == before


@pytest.mark.parametrize("run", [None, "1", -1, [1], {"number": 1}])
def test_a_run_that_nobody_has(pages, run):
    number = event_of(pages.open, "history", "restore")
    assert "no longer kept" in answer(pages.open, number, [*SMALL], event_data={"run": run})


def test_the_picture_is_the_file_and_no_other_file_can_be_read(pages, tmp_path):
    name = "7-7-script-alert-1-script-5-todome.png"
    assert name in drawn(pages.open, SMALL._replace(prompt="{{ 7 * 7 }} <script>alert(1)</script>"))
    (made,) = [path for path in pictures(pages) if path.name == name]
    got = httpx.get(f"{pages.open}gradio_api/file={quote(str(made))}")
    assert got.content == made.read_bytes()
    assert got.headers["content-security-policy"].startswith("default-src 'self'")
    assert settings_of(made).seed == 5
    beside = tmp_path / "other.png"
    beside.write_bytes(got.content)
    weights = todome_flowers.path() / "unet/diffusion_pytorch_model.safetensors"
    assert weights.exists()
    link = made.parent / "link.png"
    link.symlink_to(beside)
    for path in (
        "/etc/passwd",
        beside,
        weights,
        f"{made.parent}/../../etc/passwd",
        link,
        made.parent,
        "http://example.com",
    ):
        for ask in ("file=", "file/", "proxy=", "stream/"):
            assert httpx.get(f"{pages.open}gradio_api/{ask}{quote(str(path), safe='/:')}").status_code == 404
    link.unlink()


@pytest.mark.parametrize(
    "path",
    [
        "docs",
        "gradio_api/call/draw",
        "gradio_api/component_server",
        "gradio_api/info",
        "gradio_api/mcp/",
        "gradio_api/run/predict",
        "gradio_api/upload",
        "monitoring",
        "openapi.json",
    ],
)
def test_nothing_else_is_open(pages, path):
    for method in ("GET", "POST"):
        assert httpx.request(method, f"{pages.open}{path}").status_code in (404, 405)


def test_requests_that_are_too_large(pages):
    long = drawn(pages.open, SMALL._replace(prompt="x" * 2 * 10**7))
    assert long == "This is more than the page would send."

    def pieces():
        yield b"{}"

    streamed = httpx.post(f"{pages.open}gradio_api/queue/join", content=pieces())
    assert streamed.status_code == 413


def test_a_visitor_who_leaves_stops_the_run_and_leaves_nothing(pages, flowers):
    url, number, before = pages.open, event_of(pages.open, "draw"), len(pictures(pages))
    form = SMALL._replace(steps=40, seed=9)
    body = {"data": [*form], "fn_index": number, "session_hash": "leaver"}
    with httpx.stream("GET", f"{url}gradio_api/heartbeat/leaver") as alive:
        next(alive.iter_raw())
        httpx.post(f"{url}gradio_api/queue/join", json=body)
        with httpx.stream(
            "GET", f"{url}gradio_api/queue/data", params={"session_hash": "leaver"}, timeout=60
        ) as stream:
            until(stream, "Drawing with todome")
    dense = SMALL._replace(method="dense", seed=11)
    assert "a-rose-11-dense.png" in drawn(url, dense, "next")
    assert len(pictures(pages)) == before + 1
    (made,) = [path for path in pictures(pages) if path.name == "a-rose-11-dense.png"]
    with Image.open(made) as picture:
        found = np.asarray(picture)
    settings = dense.settings(Limits(), Settings(device="cpu"), OFFER)
    assert (found == np.asarray(make_picture(settings, flowers).picture)).all()


def until(stream: httpx.Response, text: str) -> None:
    assert any(text in line for line in stream.iter_lines())


def test_a_password(pages):
    url = pages.locked
    assert httpx.get(f"{url}config").status_code == 401
    assert httpx.post(f"{url}gradio_api/queue/join", json={}).status_code == 401
    folder = next(path for path in pages.files.iterdir() if path.is_dir())
    (folder / "a.png").write_bytes(b"")
    assert httpx.get(f"{url}gradio_api/file={folder}/a.png").status_code in (401, 404)
    with httpx.Client() as visitor:
        assert visitor.post(f"{url}login", data={"username": "ada", "password": "byron"}).status_code == 400
        visitor.post(f"{url}login", data={"username": "ada", "password": "lovelace"}).raise_for_status()
        assert visitor.get(f"{url}config").status_code == 200
    (folder / "a.png").unlink()
