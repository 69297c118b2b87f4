"""todome: diffusion models made faster by giving attention fewer tokens. One line, no training."""

import importlib

TYPE_CHECKING = False  # as in typing, which takes time to import
if TYPE_CHECKING:
    from .errors import NothingToReduce
    from .levers.downsample import Downsample
    from .levers.merge import Merge
    from .levers.plan import Plan
    from .levers.reuse import Reuse
    from .patch import Patch, apply, remove
    from .tomesd import apply_patch, remove_patch
    from .tools.measuring.evaluation import evaluate
    from .tools.measuring.explanation import explain
    from .tools.measuring.speed import bench
    from .tools.tuning.tuner import tune

__all__ = ["Downsample", "Merge", "NothingToReduce", "Patch", "Plan", "Reuse", "apply", "apply_patch", "bench"]
__all__ += ["evaluate", "explain", "remove", "remove_patch", "tune"]
__version__ = "0.1.0"

_MODULES = {
    "errors": ["NothingToReduce"],
    "patch": ["Patch", "apply", "remove"],
    "levers.downsample": ["Downsample"],
    "levers.merge": ["Merge"],
    "levers.plan": ["Plan"],
    "levers.reuse": ["Reuse"],
    "tomesd": ["apply_patch", "remove_patch"],
    "tools.measuring.evaluation": ["evaluate"],
    "tools.measuring.explanation": ["explain"],
    "tools.measuring.speed": ["bench"],
    "tools.tuning.tuner": ["tune"],
}


def __getattr__(name: str) -> object:
    """Every name is imported when it is first used: what the command sets must be set before torch is imported."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Names for completion in notebooks."""
    return sorted([*__all__, "__version__"])
