"""Finding todome: where it is installed, else the copy that `todome install` puts beside this package."""

import importlib.util
import sys
from pathlib import Path

import torch

OLDEST_TORCH = (2, 4)
VENDOR = Path(__file__).parent.parent / "vendor"


def explain_missing_core() -> str | None:
    """Why todome cannot be used here, and what to do; None where it can."""
    version = tuple(int(number) for number in torch.__version__.split(".")[:2])
    if version < OLDEST_TORCH:
        return (
            f"torch={torch.__version__!r} cannot be used. Allowed: 2.4 or newer. "
            "Install a newer torch in the environment of this webui, or remove the extension."
        )
    if importlib.util.find_spec("todome") is None and (VENDOR / "todome").is_dir():
        sys.path.append(str(VENDOR))
    if importlib.util.find_spec("todome") is None:
        return (
            "The extension is here, but todome itself is not. Run `todome install --webui PATH` with the folder of "
            "this webui, or install todome in its environment."
        )
    return None
