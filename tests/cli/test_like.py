"""`todome generate --like`: a picture from anywhere chooses neither the model nor the device by itself."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from todome import Downsample
from todome.tools.commands import app
from todome.tools.generate import Generated, Settings
from todome.tools.pictures import write_png

AGAIN = ("generate", "--like", "one.png", "-o", "again.png")


def picture(model: str, device: str = "cpu") -> None:
    """A file that says it was made with a model."""
    settings = Settings("a", model=model, size=(32, 32), steps=1, reduction=Downsample(2), device=device)
    made = Generated(Image.new("RGB", (32, 32)), settings, "DDIM", 1.0, "")
    write_png(made.picture, Path("one.png"), made.texts(), force=True)


def test_without_a_terminal_a_model_of_the_picture_is_refused(refused):
    picture("some/model; rm")
    assert refused(*AGAIN, code=2).endswith("If you trust it, say so with --model 'some/model; rm'.")
    assert not Path("again.png").exists()


def test_the_device_is_not_the_picture_s(run, opened_once):
    picture("todome-flowers", device="cuda:77")
    assert run(*AGAIN, "--device", "cpu").exit_code == 0
    assert run(*AGAIN, "--force").exit_code == 0


@pytest.fixture
def terminal() -> Iterator[Callable[[str], int]]:
    """Types an answer, and gives the end of a terminal at which it can be read."""
    ends: list[int] = []

    def typed(answer: str) -> int:
        ends.extend(os.openpty())
        os.write(ends[0], f"{answer}\n".encode())
        return ends[1]

    yield typed
    for end in ends:
        os.close(end)


@pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_it_asks(run, folder, terminal, monkeypatch, capsys, answer):
    """In this process: another one would import diffusers for as long as all else here takes."""
    picture(str(folder))
    with open(terminal(answer), closefd=False) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(SystemExit) as ended:
            app([*AGAIN, "--device", "cpu"], prog_name="todome")
    assert ended.value.code == (0 if answer == "y" else 1)
    assert capsys.readouterr().err.startswith(f"'one.png' names the model {str(folder)!r}. Use it? [y/N]:")
    assert Path("again.png").exists() == (answer == "y")
