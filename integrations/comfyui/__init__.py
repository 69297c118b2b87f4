"""Token downsampling and token merging in ComfyUI."""

from . import core  # noqa: F401  first: the nodes need todome
from .nodes import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS

__all__ = ["NODE_CLASS_MAPPINGS", "NODE_DISPLAY_NAME_MAPPINGS"]
