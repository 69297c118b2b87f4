"""Token downsampling and token merging in ComfyUI."""

from pathlib import Path

from .find_todome import load_todome  # pyright: ignore[reportMissingImports]  (put here by todome install)

print(f"todome: using {load_todome(Path(__file__).parent / 'vendor')}")

from .nodes import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS  # noqa: E402  (the nodes need todome)

__all__ = ["NODE_CLASS_MAPPINGS", "NODE_DISPLAY_NAME_MAPPINGS"]
