"""Every Python snippet of the pages runs, and reduces something; every command exists, with its options."""

import re
from pathlib import Path
from typing import Any

import pytest
import todome_flowers
import torch
import typer
from pages import PAGES, ROOT, Snippet, command_lines, fenced, inline_commands, words
from typer.testing import CliRunner
from zoo import small_unet, tiny_pipeline

import todome
from todome.tools.commands import app

WITH_SNIPPETS = [page for page in PAGES if fenced(page, "python")]
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


def test_readme_snippet_runs(capsys):
    """The one that uses what is there; the other one downloads a model."""
    snippets = [part.split("```")[0] for part in (ROOT / "README.md").read_text().split("```python\n")[1:]]
    pipe = tiny_pipeline(unet=small_unet())
    exec(snippets[1], {"todome": todome, "pipe": pipe, "unet": pipe.unet, "scheduler": pipe.scheduler})
    assert "level 1" in capsys.readouterr().out
    assert "step" not in vars(pipe.scheduler)


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


def test_commands_that_generate_do(small_world: Path, reader: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("todome.tools.pipelines.open_pipeline", lambda *_, **__: reader["pipe"])
    for module in ("pipelines", "memory"):  # as if the models of the page were here
        monkeypatch.setattr(f"todome.tools.{module}.find_model", lambda _: todome_flowers.path())
    monkeypatch.setattr("todome.tools.checkpoints.opening.check_parts", lambda *_: None)
    lines = [line for line in command_lines("docs/hosts/command.md") if line.text.startswith("todome generate")]
    assert len(lines) == 6
    made = set()
    for line in lines:
        force = ["--force"] if "-o tulip.png" in line.text else []
        result = CliRunner().invoke(app, [*words(line), *force])
        assert result.exit_code == 0, (line.text, result.output)
        made |= set(re.findall(r"(\S+\.png): ", result.output))
    assert made == {
        "tulip.png",
        "lighthouse.png",
        "ink.png",
        *(f"tulip-{i}.png" for i in range(1, 5)),
        "dense.png",
        "another.png",
    }
