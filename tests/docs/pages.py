"""The pages of the documentation, and what is written in them to be run."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/**/*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(todome [a-z]+(?: .*)?)$")  # maybe after variables of the environment
INLINE = re.compile(r"`(todome [a-z][^`]*)`")


class Snippet(NamedTuple):
    page: str
    line: int  # of the page, at which it begins
    text: str


def fenced(page: str, language: str) -> list[Snippet]:
    text = (ROOT / page).read_text()
    found = [match for match in FENCE.finditer(text) if match[1] == language]
    return [Snippet(page, text.count("\n", 0, match.start(2)) + 1, match[2]) for match in found]


def command_lines(page: str) -> list[Snippet]:
    """What is typed: the lines of blocks without a language in which todome is called, each from there on."""
    blocks = [(snippet, snippet.text.splitlines()) for snippet in fenced(page, "")]
    lines = [(snippet.line + i, line) for snippet, block in blocks for i, line in enumerate(block)]
    return [Snippet(page, number, match[1]) for number, line in lines if (match := COMMAND.match(line))]


def inline_commands(page: str) -> list[Snippet]:
    """What sentences name; those that only begin a list of commands or explain themselves say nothing more."""
    text = FENCE.sub("", (ROOT / page).read_text())
    return [Snippet(page, 0, match[1].replace("\n", " ")) for match in INLINE.finditer(text)]


def words(command: Snippet) -> list[str]:
    """The words after `todome`, as a shell splits them."""
    return shlex.split(command.text, comments=True)[1:]
