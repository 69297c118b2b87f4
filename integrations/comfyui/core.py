"""Finds todome: where it is installed, else in the copy that `todome install --comfyui` puts beside these nodes."""

import importlib.util
import sys
from pathlib import Path

VENDOR = Path(__file__).parent / "vendor"

if importlib.util.find_spec("todome") is None:
    if not (VENDOR / "todome").is_dir():
        raise ImportError(
            "The nodes are here, but todome itself is not. Run `todome install --comfyui PATH` with the folder of this "
            "ComfyUI, or install todome in its environment."
        )
    sys.path.append(str(VENDOR))
