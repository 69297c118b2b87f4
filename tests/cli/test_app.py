"""`todome app`: what it refuses before it opens anything. That it serves is tested in tests/app."""

import socket
import sys

import pytest


def test_addresses_that_cannot_be_used(refused):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"host, port=('127.0.0.1', {port}) cannot be used. Allowed: " in refused("app", "--port", port)
    assert "host, port=('192.0.2.1', 7860) cannot be used. Allowed: " in refused("app", "--host", "192.0.2.1")


@pytest.mark.parametrize("auth", ["ada", ":", "ada:", ":lovelace"])
def test_a_password_that_is_none(refused, monkeypatch, auth):
    monkeypatch.setenv("TODOME_APP_AUTH", auth)
    assert refused("app", code=2) == "Invalid value for --auth: It is not USER:PASSWORD."


@pytest.mark.parametrize(("option", "value"), [("max-size", 8), ("max-size", 10**6), ("max-steps", 0)])
def test_limits_that_allow_nothing(refused, option, value):
    assert f"{option}={value} cannot be used. Allowed: a whole number from " in refused("app", f"--{option}", value)


def test_gradio_is_named_with_its_extra(refused, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("todome.tools.app.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert refused("app") == 'This needs gradio, which is missing. Install it: pip install "todome[app]"'
