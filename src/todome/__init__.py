"""todome: diffusion models made faster by giving attention fewer tokens. One line, no training, the same picture."""

from .patch import NothingToReduce, Patch, apply, remove
from .reductions import Downsample, Merge
from .tomesd import apply_patch, remove_patch

__all__ = ["Downsample", "Merge", "NothingToReduce", "Patch", "apply", "apply_patch", "remove", "remove_patch"]
__version__ = "0.1.0"
