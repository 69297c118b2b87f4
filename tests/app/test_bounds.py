"""Visitors who mean no good: other names, guessed passwords, made-up sessions. The page stays there for the others."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from small_page import LIMITS, SMALL, answer, drawn, event_of

from todome.tools.app.filter import KnownHosts, visitor_address
from todome.tools.app.form import Form
from todome.tools.app.throttle import ADDRESSES, TRIES, TRIES_IN_ALL, LoginThrottle

HERE = "127.0.0.1"


def status(url: str, host: str) -> int:
    return httpx.get(f"{url}theme.css", headers={"Host": host}).status_code


@pytest.mark.parametrize(
    "host", ["rebound.example", "127.0.0.1.rebound.example", "192.0.2.7", "localhost.example:7860", "[::2]", "", "["]
)
def test_a_name_of_somebody_else_is_refused(pages, host):
    said = httpx.get(f"{pages.open}config", headers={"Host": host})
    assert said.status_code == 400
    if host:  # without one, the server refuses by itself
        assert said.text == (
            "The page is not served under this name. --hostname NAME allows another one when it is started."
        )


def test_names_of_the_page(pages):
    assert {status(pages.open, host) for host in ("localhost", "LocalHost:7860", "127.0.0.1:1", "[::1]:7860")} == {200}
    machine = socket.gethostname()
    here = ("localhost:7860", "192.0.2.7:7860", "[2001:db8::1]:7860", machine, f"{machine}.local", "flowers.example")
    assert {status(pages.locked, host) for host in here} == {200}
    assert {status(pages.locked, host) for host in ("rebound.example", "192.0.2.7.rebound.example")} == {400}
    assert status(pages.open, "flowers.example") == 400
    one = KnownHosts.at("192.0.2.7")
    assert one.include("192.0.2.7:7860")
    assert not one.include("192.0.2.8:7860")


def log_in(url: str, password: str, address: str) -> httpx.Response:
    form, headers = {"username": "ada", "password": password}, {"X-Forwarded-For": address}
    return httpx.post(f"{url}login", data=form, headers=headers)


def test_passwords_cannot_be_guessed_fast(pages):
    tried = [log_in(pages.locked, f"guess {number}", "203.0.113.7").status_code for number in range(TRIES)]
    assert tried == [400] * TRIES
    refused = log_in(pages.locked, "lovelace", "203.0.113.7")
    assert refused.status_code == 429
    seconds = int(refused.headers["Retry-After"])
    assert 1 <= seconds <= 60
    assert refused.text == f"There were too many wrong passwords. Try again in {seconds} seconds."
    for _ in range(TRIES + 1):  # who knows it may come as often as they like
        assert log_in(pages.locked, "lovelace", "203.0.113.8").status_code == 200


def test_guessing_from_many_addresses(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    logins = LoginThrottle()
    assert [logins.try_once(f"10.0.0.{number}") for number in range(TRIES_IN_ALL)] == [0.0] * TRIES_IN_ALL
    assert logins.try_once("192.0.2.7") == 60.0
    for number in range(2 * ADDRESSES):
        assert logins.try_once(f"10.1.{number // 256}.{number % 256}") > 0
    assert len(logins.addresses) == ADDRESSES
    now[0] += 60
    assert logins.try_once("192.0.2.7") == 0.0


def test_addresses_are_counted_by_network_where_everybody_has_many():
    assert visitor_address("2001:db8:1:2:3::4") == visitor_address("2001:db8:1:2:ffff::") == "2001:db8:1:2::/64"
    assert visitor_address("192.0.2.7") == "192.0.2.7"
    assert visitor_address("fe80::1%eth0") == "fe80::/64"
    assert visitor_address("") == ""


def test_one_address_cannot_take_the_whole_queue(pages):
    """With as many sessions as it likes, none of which has a heartbeat."""
    url, form = pages.small, SMALL._replace(width=128, height=128, steps=40)
    with ExitStack() as streams:
        first, second, modest = (
            streams.enter_context(events(url, form, session, address))
            for session, address in (("greedy 1", HERE), ("greedy 2", HERE), ("modest", "203.0.113.7"))
        )
        assert any("Drawing with full attention" in line for line in first)
        assert any("1 run of others before yours" in line for line in second)
        assert "2 runs from your address are not finished yet. Wait for one of them." in drawn(url, SMALL, "greedy 3")
        assert any("2 runs of others before yours" in line for line in modest)
        full = answer(url, event_of(url, "draw"), [*SMALL], "late", "203.0.113.8")
        assert "The queue is full (2 runs). Try again in a minute." in full
    # Whoever leaves gives the place free, as soon as the server has noticed it.
    assert any("a-rose-5-todome.png" in drawn(url, SMALL, "greedy 3") for _ in tries_within(60))


def tries_within(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.2)


@contextmanager
def events(url: str, form: Form, session: str, address: str) -> Iterator[Iterator[str]]:
    """What a visitor is told about a run, for as long as they listen."""
    body = {"data": [*form], "fn_index": event_of(url, "draw"), "session_hash": session}
    httpx.post(f"{url}gradio_api/queue/join", json=body, headers={"X-Forwarded-For": address}).raise_for_status()
    asked = {"params": {"session_hash": session}, "timeout": 60}
    with httpx.stream("GET", f"{url}gradio_api/queue/data", **asked) as stream:
        yield stream.iter_lines()


def test_pictures_of_made_up_sessions_make_room(pages):
    """The oldest first, so that there is never more than the limit."""
    url, restore = pages.small, event_of(pages.small, "history", "restore")
    form = SMALL._replace(prompt="room", width=128, height=128, steps=1)
    for seed in range(3):
        assert f"room-{seed}-todome.png" in drawn(url, form._replace(seed=seed), f"visitor {seed}")
        newest = next(pages.files.rglob(f"room-{seed}-todome.png"))
        assert size(newest.parent.parent) <= LIMITS["disk"]
    assert not list(pages.files.rglob("room-0-*.png"))
    assert "no longer kept" in answer(url, restore, [*SMALL], "visitor 0", event_data={"run": 1})
    assert "room-2-todome.png" in answer(url, restore, [*SMALL], "visitor 2", event_data={"run": 1})
    again = drawn(url, form._replace(seed=0, method="ToDo"), "visitor 0")
    assert "room-0-todo.png" in again  # the dense picture is drawn anew


def size(folder: Path) -> int:
    """Of the pictures of visitors; the example is the page's own."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.parent.name != "example")


def test_made_up_sessions_are_forgotten(pages):
    url, restore = pages.small, event_of(pages.small, "history", "restore")
    assert "a-rose-5-todome.png" in drawn(url, SMALL, "early")
    assert "a-rose-5-todome.png" in answer(url, restore, [*SMALL], "early", event_data={"run": 1})
    for number in range(21):
        answer(url, restore, [*SMALL], f"made up {number}", event_data={"run": 1})
    assert "no longer kept" in answer(url, restore, [*SMALL], "early", event_data={"run": 1})
