"""Every Python snippet of the pages runs, and reduces something; every command exists, with its options."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from pages import PAGES, Snippet, command_lines, fenced, inline_commands, words

import todome
from todome.tools.commands import app

LONG = {"docs/hosts/diffusers.md"}  # it compiles and exports
WITH_SNIPPETS = [
    pytest.param(page, marks=[pytest.mark.thorough] * (page in LONG)) for page in PAGES if fenced(page, "python")
]
COMMANDS = typer.main.get_command(app)


@pytest.fixture
def patches(monkeypatch: pytest.MonkeyPatch) -> list[todome.Patch]:
    """What `todome.apply` gives to snippets, in their order."""
    found: list[todome.Patch] = []
    apply = todome.apply

    def remembered(*args: Any, **options: Any) -> todome.Patch:
        found.append(apply(*args, **options))
        return found[-1]

    monkeypatch.setattr(todome, "apply", remembered)
    return found


def run(snippet: Snippet, names: dict[str, Any]) -> None:
    exec(compile("\n" * (snippet.line - 1) + snippet.text, snippet.page, "exec"), names)


def reduced(patch: todome.Patch) -> bool:
    grids = [grid for level in patch.levels for grid in level.grids.items()]
    return any(left < height * width for (height, width), left in grids)


@pytest.mark.parametrize("page", WITH_SNIPPETS)
def test_snippets_run(page: str, reader: dict[str, Any], small_world: Path, patches: list[todome.Patch]):
    torch._dynamo.reset()
    for snippet in fenced(page, "python"):
        before = len(patches)
        with torch.set_grad_enabled("backward()" in snippet.text):
            run(snippet, reader)
        if patches[before:] and re.search(r"\b(pipe|hires|unet|diffusion_model)\(", snippet.text):
            assert reduced(patches[-1]), snippet
        for name in re.findall(r'(?:save\(|export_to_gif\(frames, )"([^"]+)"', snippet.text):
            assert (small_world / name).stat().st_size, name


@pytest.mark.parametrize("page", PAGES)
def test_commands_can_be_typed(page: str):
    for line in command_lines(page):
        name, *rest = words(line)
        command = COMMANDS.get_command(None, name)  # pyright: ignore[reportAttributeAccessIssue]
        assert command is not None, line
        command.make_context(name, rest)


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_sentences_name_exist(page: str):
    for named in inline_commands(page):
        name, *rest = named.text.split()[1:]
        command = COMMANDS.get_command(None, name.rstrip(","))  # pyright: ignore[reportAttributeAccessIssue]
        assert command is not None, named
        known = {option for param in command.params for option in param.opts} | {"--help"}
        assert {word for word in rest if word.startswith("-")} <= known, named
