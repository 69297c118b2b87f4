"""The command itself: how it starts, what it needs, and that `import todome` needs none of it."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from fresh import run_fresh
from PIL import Image

WITHOUT = """
import sys
sys.modules[{package!r}] = None
sys.argv = ["todome", *{words!r}]
from todome.tools.cli import main
main()
"""


def test_as_a_module_in_a_process_of_its_own(tmp_path):
    options = ("--size", "32x32", "--steps", "1", "--device", "cpu")
    words = [sys.executable, "-m", "todome", "generate", "a rose", "-o", "rose.png", *options]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert done.stdout.startswith("rose.png: 32x32 pixels in ")
    with Image.open(tmp_path / "rose.png") as picture:
        assert picture.size == (32, 32)


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("typer", ["--help"], "cli"),
        ("diffusers", ["generate", "a", "-o", "a.png"], "cli"),
        ("todome_flowers", ["generate", "a", "-o", "a.png"], "cli"),
        ("PIL", ["demo"], "cli"),
        ("tqdm", ["bench"], "eval"),
        ("jinja2", ["report", "run"], "eval"),
        ("matplotlib", ["report", "run"], "eval"),
    ],
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


def test_the_command_is_installed():
    (command,) = entry_points(group="console_scripts", name="todome")
    assert command.value == "todome.tools.cli:main"


def test_import_todome_loads_nothing_of_the_command():
    code = "import sys, todome; print(*[name for name in sys.modules if name.startswith('todome.')])"
    loaded = {name.split(".")[1] for name in run_fresh(code).stdout.split()}
    assert "patch" in loaded
    assert "tools" not in loaded
