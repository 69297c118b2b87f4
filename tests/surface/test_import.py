"""`import todome` is light, and the public surface is exactly what it says."""

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fresh import run_fresh

import todome

CORE = ["Downsample", "Merge", "NothingToReduce", "Patch", "apply", "remove"]
BESIDE = ["Plan", "Reuse", "apply_patch", "bench", "evaluate", "explain", "remove_patch", "tune"]
SURFACE = sorted([*CORE, *BESIDE])
HEAVY = {"accelerate", "diffusers", "ldm", "peft", "tomesd", "torchvision", "transformers"}
HEAVY |= {"PIL", "jinja2", "matplotlib", "rich", "safetensors", "torchmetrics", "typer"}


def modules_after(statement: str, run: Any = run_fresh) -> set[str]:
    """The modules a fresh interpreter has loaded after a statement; by default torch is one of them."""
    done = run(f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))")
    done.check_returncode()
    return set(json.loads(done.stdout))


def run_bare(code: str) -> Any:
    """Runs a script in a process without torch."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_import_loads_nothing_else_and_leaves_the_environment_as_it_is():
    """What torch reads when it is imported is up to the program: it may still set it."""
    before = "import os; before = dict(os.environ)"
    added = modules_after(f"{before}; import todome; assert before == dict(os.environ)", run_bare)
    added -= modules_after(before, run_bare)
    assert {name for name in added if name.split(".")[0] not in sys.stdlib_module_names} == {"todome"}


APPLY = "import todome; todome.apply, todome.remove, todome.Patch, todome.Downsample(2), todome.Merge(0.5)"


def test_the_core_loads_torch_alone_and_the_clock_no_pictures():
    loaded = modules_after(APPLY)
    assert not any(name.startswith(("torch._dynamo", "torch._inductor", "todome.tools")) for name in loaded)
    loaded |= modules_after("import todome; todome.bench; todome.explain")
    assert "todome.tools.timing" in loaded
    assert not HEAVY & {name.split(".")[0] for name in loaded}


def test_the_surface_is_what_it_says():
    assert todome.__all__ == SURFACE
    assert dir(todome) == sorted([*SURFACE, "__version__"])


def test_what_is_beside_the_core_is_loaded_where_it_is_asked_for():
    beside = ("todome.levers.plan", "todome.levers.reuse", "todome.tomesd", "todome.tools.measuring.")
    beside += ("todome.tools.tuning.",)
    assert not any(name.startswith(beside) for name in modules_after("import todome; dir(todome)"))
    for name in BESIDE:
        assert getattr(todome, name).__module__.startswith(beside)


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match=r"^module 'todome' has no attribute 'nonsense'$"):
        todome.nonsense  # noqa: B018


def test_every_public_name_is_documented():
    for name in SURFACE:
        value = getattr(todome, name)
        assert inspect.getdoc(value), name
        assert value.__doc__ is not None, f"{name} has the docstring of its parent"
        methods = inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else []
        undocumented = [m for m, method in methods if not m.startswith("_") and not inspect.getdoc(method)]
        assert not undocumented, name


def test_every_field_is_documented_and_typed():
    for reduction in (todome.Downsample, todome.Merge):
        lacking = [f for f in inspect.signature(reduction).parameters if f not in (reduction.__doc__ or "")]
        assert not lacking, reduction
    assert (Path(todome.__file__).parent / "py.typed").is_file()
