"""Options for lists take every word up to the next option."""

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from todome.tools.commands.words import SeveralWords

app = typer.Typer()


@app.command(cls=SeveralWords)
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
    assert CliRunner().invoke(app, words.split()).stdout == f"{told}\n"


def test_an_option_without_a_word():
    result = CliRunner().invoke(app, ["--steps", "3", "--sizes"])
    assert result.exit_code == 2
    assert "Option '--sizes' requires an argument." in result.stderr
