"""todome: diffusion models made faster by giving attention fewer tokens. One line, no training."""

import importlib
import typing

from .errors import NothingToReduce
from .patch import Patch, apply, remove
from .reductions import Downsample, Merge

if typing.TYPE_CHECKING:
    from .tomesd import apply_patch, remove_patch
    from .tools.measuring.evaluation import evaluate
    from .tools.measuring.explanation import explain
    from .tools.measuring.speed import bench

__all__ = [
    "Downsample",
    "Merge",
    "NothingToReduce",
    "Patch",
    "apply",
    "apply_patch",
    "bench",
    "evaluate",
    "explain",
    "remove",
    "remove_patch",
]
__version__ = "0.1.0"

_LOADED_LATER = {
    "apply_patch": "tomesd",
    "bench": "tools.measuring.speed",
    "evaluate": "tools.measuring.evaluation",
    "explain": "tools.measuring.explanation",
    "remove_patch": "tomesd",
}


def __getattr__(name: str) -> typing.Any:
    """Names outside of the core are imported when they are first used, so `import todome` stays light."""
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_LOADED_LATER[name]}", __name__), name)


def __dir__() -> list[str]:
    """Names for completion in notebooks."""
    return sorted([*__all__, "__version__"])
