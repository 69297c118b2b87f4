"""The house: which, when, how, where are four folders, and imports go in one direction."""

import ast
import io
import sys
import tokenize
from pathlib import Path

import pytest

import todome

ROOT = Path(todome.__file__).parent
ROOMS = ("tokens", "steps", "hooks", "hosts", "tools")
# What each room may import of ours, at the top of a file or inside of a function.
ALLOWED = {
    "tokens": {"tokens"},
    "steps": {"steps", "errors", "reductions"},
    "hooks": {"hooks", "steps", "tokens", "reductions", "errors"},
    "hosts": {"hosts", "hooks", "steps", "tokens", "reductions", "errors"},
    "errors": set(),
    "reductions": {"errors", "tokens"},
    "patch": {"errors", "reductions", "steps", "tokens", "hooks", "hosts"},
    "plan": {"errors", "reductions", "tokens"},
    "tomesd": {"patch", "reductions", "hosts"},
}
LINES_OF_THE_CORE = 2000  # of code
BESIDE_THE_CORE = {"__main__.py", "plan.py", "tomesd.py"}  # loaded where they are asked for


def core_files() -> list[Path]:
    return [path for path in ROOT.rglob("*.py") if "tools" not in path.relative_to(ROOT).parts]


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    package = ["todome", *path.relative_to(ROOT).parent.parts]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            full = [*base, *(node.module.split(".") if node.module else [])]
            names = [full[1]] if len(full) > 1 else [alias.name for alias in node.names]
            found |= set(names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("todome."):
            found.add((node.module or "").split(".")[1])
    return found


@pytest.mark.parametrize("path", core_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_go_in_one_direction(path):
    room = room_of(path)
    if room in ALLOWED:
        assert imported_rooms(path) <= ALLOWED[room]


def test_the_core_never_imports_tools_but_where_a_user_asks_for_them():
    users = {path.name for path in core_files() if "tools" in imported_rooms(path)}
    assert users <= {"__init__.py", "__main__.py"}


def test_the_core_imports_torch_alone():
    for path in core_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            tops = {name.split(".")[0] for name in names}
            assert tops <= {"torch", *sys.stdlib_module_names}, path


def test_nothing_outside_of_hosts_names_a_class_of_a_model():
    classes = ("UNet2DConditionModel", "BasicTransformerBlock", "Transformer2DModel", "SpatialTransformer", "UNetModel")
    for path in core_files():
        if room_of(path) != "hosts":
            code = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            names = {node.value for node in code if isinstance(node, ast.Constant) and isinstance(node.value, str)}
            assert not set(classes) & names, path


def code_lines(path: Path) -> int:
    """Lines with code on them: not those of docstrings, comments and nothing at all."""
    text = path.read_text(encoding="utf-8")
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    first = [node.body[0] for node in ast.walk(ast.parse(text)) if isinstance(node, kinds) and node.body]
    docs = [one for one in first if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
    prose = {line for one in docs for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            found |= set(range(token.start[0], token.end[0] + 1))
    return len(found - prose)


def test_the_core_stays_small():
    core = [path for path in core_files() if path.name not in BESIDE_THE_CORE]
    assert sum(map(code_lines, core)) < LINES_OF_THE_CORE
