"""The house: what, which, when, how, where are five folders, and imports go in one direction."""

import ast
import sys
from pathlib import Path

import todome

ROOT = Path(todome.__file__).parent
# What each room may import of ours, at the top of a file or inside of a function.
ALLOWED = {
    "tokens": {"tokens"},
    "levers": {"levers", "errors", "tokens"},
    "steps": {"steps", "errors", "levers"},
    "hooks": {"hooks", "steps", "tokens", "levers", "errors", "hosts"},
    "hosts": {"hosts", "hooks", "steps", "tokens", "levers", "errors"},
    "errors": set(),
    "patch": {"errors", "levers", "steps", "hooks"},
    "tomesd": {"patch", "levers", "hosts"},
}


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


def test_imports_go_in_one_direction():
    for path in core_files():
        assert imported_rooms(path) <= ALLOWED.get(room_of(path), {*ALLOWED, "tools"}), path


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
