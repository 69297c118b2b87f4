"""Finding todome for an extension: the installed one where it fits, else the copy that lies beside the extension.

`todome install` puts this file into the folder of each integration.
"""

import importlib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import torch

SERIES = "0.1"  # the versions of todome that the integrations are written for
OLDEST_TORCH = (2, 1)


def load_todome(vendor: Path) -> str:
    """Imports todome, and returns a phrase that says which one. Raises ImportError where none can be used."""
    check_torch()
    loaded = sys.modules.get("todome")
    if loaded is not None:
        return checked(loaded, "which something else has loaded already")
    if fits(installed_version()):
        return checked(importlib.import_module("todome"), "installed in this environment")
    if (vendor / "todome").is_dir():
        return checked(load_copy(vendor / "todome" / "__init__.py"), "the copy in the extension")
    raise ImportError(
        f"The extension is here, but todome {SERIES} itself is not. Run `todome install` with the folder of this "
        "program, or install todome in its environment."
    )


def check_torch() -> None:
    version = tuple(int(number) for number in torch.__version__.split(".")[:2])
    if version < OLDEST_TORCH:
        raise ImportError(
            f"torch={torch.__version__!r} cannot be used. Allowed: {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or newer. "
            "Install a newer torch in the environment of this program, or remove the extension."
        )


def checked(todome: ModuleType, where: str) -> str:
    if not fits(todome.__version__):
        raise ImportError(
            f"todome={todome.__version__!r}, {where}, cannot be used. Allowed: {SERIES}. Run `todome install` again "
            "with the folder of this program, or remove the other one."
        )
    return f"todome {todome.__version__}, {where}"


def fits(version: str | None) -> bool:
    return version is not None and version.split(".")[:2] == SERIES.split(".")


def installed_version() -> str | None:
    try:
        return importlib.metadata.version("todome")
    except importlib.metadata.PackageNotFoundError:
        return None


def load_copy(file: Path) -> ModuleType:
    """Imports a package by its file: the path of the host stays as it is."""
    spec = importlib.util.spec_from_file_location("todome", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["todome"] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["todome"]
        raise
    return module
