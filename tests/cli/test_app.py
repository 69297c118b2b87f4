"""`todome app`: what it refuses before it opens anything. That it serves is tested in tests/app."""

import re
import socket
import sys

import pytest


def test_a_port_that_is_taken(refused):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = f"port={port} cannot be used. Allowed: a port that is free on 127.0.0.1, and that you may use. "
        assert refused("app", "--port", port) == text + "Choose another one with --port."


def test_an_address_of_another_machine(refused):
    text = "host='192.0.2.1' cannot be used. Allowed: an address of this machine. 127.0.0.1 is for this machine alone."
    assert refused("app", "--host", "192.0.2.1") == text


@pytest.mark.parametrize("auth", ["ada", ":", "ada:", ":lovelace"])
def test_a_password_that_is_none(refused, monkeypatch, auth):
    monkeypatch.setenv("TODOME_APP_AUTH", auth)
    assert refused("app", code=2) == "Invalid value for --auth: It is not USER:PASSWORD."


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--max-size", 8, "Side 8 does not work: it must be a whole number from 64 to 1048576. Try 64."),
        ("--max-steps", 0, "Steps 0 does not work: it must be a whole number from 1 to 1048576. Try 1."),
        ("--max-minutes", 0, "Minutes 0 does not work: it must be a whole number from 1 to 1048576. Try 1."),
        ("--max-prompt", -1, "Prompt -1 does not work: it must be a whole number from 1 to 1048576. Try 1."),
    ],
)
def test_limits_that_allow_nothing(refused, option, value, text):
    assert refused("app", option, value) == text


def test_gradio_is_named_with_its_extra(refused, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("todome.tools.app.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert refused("app") == 'This needs gradio, which is missing. Install it: pip install "todome[app]"'


def test_a_disk_that_holds_nothing(refused):
    said = refused("app", "--max-disk", 0, code=2)
    assert "--max-disk" in said
    assert "1" in said


def test_the_environment_is_named_before_the_command_line(run):
    """Everybody on a machine can read the command lines of others."""
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", run("app", "--help").stdout).split())
    assert "Safer in TODOME_APP_AUTH: others here can read command lines." in text
