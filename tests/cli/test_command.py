"""The command itself: how it starts, what it needs, how words go to options; and what its page refuses to open."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer
from fresh import run_fresh
from PIL import Image
from typer.testing import CliRunner

from todome.tools.cli import WAITING, prepare_environment
from todome.tools.commands.words import SeveralWords

WITHOUT = """
import sys
sys.modules[{package!r}] = None
sys.argv = ["todome", *{words!r}]
from todome.tools.cli import main
main()
"""


@pytest.mark.thorough
def test_as_a_module_in_a_process_of_its_own(tmp_path):
    options = ("--size", "32x32", "--steps", "1", "--device", "cpu")
    words = [sys.executable, "-m", "todome", "generate", "a rose", "-o", "rose.png", *options]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert done.stdout.startswith("rose.png: 32x32 pixels in ")
    with Image.open(tmp_path / "rose.png") as picture:
        assert picture.size == (32, 32)


MISSING = [
    ("typer", ["--help"], "cli"),
    ("jinja2", ["report", "run"], "eval"),
    ("diffusers", ["generate", "a", "-o", "a.png"], "cli"),
    ("todome_flowers", ["generate", "a", "-o", "a.png"], "cli"),
    ("PIL", ["demo"], "cli"),
    ("tqdm", ["bench"], "eval"),
    ("matplotlib", ["report", "run"], "eval"),
]


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [*MISSING[:2], *(pytest.param(*one, marks=pytest.mark.thorough) for one in MISSING[2:])],
)
def test_a_package_that_is_missing(tmp_path, package, words, extra):
    done = run_fresh(WITHOUT.format(package=package, words=words), tmp_path)
    text = f'Error: This needs {package}, which is missing. Install it: pip install "todome[{extra}]"\n'
    assert (done.returncode, done.stdout, done.stderr) == (1, "", text)


def test_help_needs_no_diffusers(tmp_path):
    done = run_fresh(WITHOUT.format(package="diffusers", words=["generate", "--help"]), tmp_path)
    assert done.returncode == 0
    assert "WIDTHxHEIGHT" in done.stdout


def test_help_tells_every_command(run):
    assert run("--help").exit_code == 0
    for command in ("generate", "demo", "eval", "report", "explain", "bench", "install", "app"):
        assert f" {command} " in run("--help").stdout
        assert run(command, "--help").exit_code == 0


def test_version(run):
    assert run("--version").stdout == "todome 0.1.0\n"


def test_threads_that_wait_sleep():
    """OpenMP itself says so, when torch loads it: beside another program, threads that spin are ten times slower."""
    own = {name: value for name, value in os.environ.items() if name not in WAITING}
    words = [Path(sys.executable).with_name("todome"), "--version"]
    done = subprocess.run(words, env={**own, "OMP_DISPLAY_ENV": "VERBOSE"}, capture_output=True, text=True, check=True)
    if "OMP_WAIT_POLICY" not in done.stderr:
        pytest.skip("the OpenMP of this torch says nothing of itself")
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr
    assert "GOMP_SPINCOUNT = '0'" in done.stderr


@pytest.mark.parametrize("name", WAITING)
def test_what_the_user_has_set_stays(monkeypatch, name):
    for one in WAITING:
        monkeypatch.delenv(one, raising=False)
    prepare_environment()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv(name, "7")
    prepare_environment()
    assert {one: os.environ[one] for one in WAITING if one in os.environ} == {name: "7"}


words_app = typer.Typer()


@words_app.command(cls=SeveralWords)
def show(
    model: Annotated[str | None, typer.Argument()] = None,
    *,
    sizes: Annotated[list[str] | None, typer.Option("--sizes", "-s")] = None,
    methods: Annotated[list[str] | None, typer.Option()] = None,
    steps: Annotated[int, typer.Option()] = 1,
) -> None:
    typer.echo(f"{model} {sizes} {methods} {steps}")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "None None None 1"),
        ("--sizes 512 1024 2048 --methods dense todome", "None ['512', '1024', '2048'] ['dense', 'todome'] 1"),
        ("--sizes 512 --steps 3 --sizes 1024 2048", "None ['512', '1024', '2048'] None 3"),
        ("--sizes=512 1024", "None ['512', '1024'] None 1"),
        ("-s 512 1024", "None ['512', '1024'] None 1"),
        ("folder --sizes 512 1024", "folder ['512', '1024'] None 1"),
        ("--sizes 512 1024 -- folder", "folder ['512', '1024'] None 1"),
        ("--sizes 512 --steps 3 folder", "folder ['512'] None 3"),
        ("--sizes same same", "None ['same', 'same'] None 1"),
    ],
)
def test_words_go_to_the_option_before_them(words, told):
    assert CliRunner().invoke(words_app, words.split()).stdout == f"{told}\n"


def test_an_option_without_a_word():
    result = CliRunner().invoke(words_app, ["--steps", "3", "--sizes"])
    assert result.exit_code == 2
    assert "Option '--sizes' requires an argument." in result.stderr


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
