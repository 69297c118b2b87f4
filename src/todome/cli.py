"""The command `todome`. The commands are in `todome.commands`, one file each."""

import os
import sys

FOR_MEASURING = {"jinja2", "matplotlib", "safetensors", "torchmetrics", "tqdm"}  # in the extra `eval`, not in `demo`


def main() -> None:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it misses a torchvision that nothing here uses
    try:
        from .commands import app
    except ModuleNotFoundError as error:
        sys.exit(lacking(error))
    app(prog_name="todome")


def lacking(error: ModuleNotFoundError) -> str:
    """What to say where a package is not installed."""
    package = str(error.name).partition(".")[0]
    extra = "eval" if package in FOR_MEASURING else "demo"
    return f'Error: This needs {package}, which is missing. Install it: pip install "todome[{extra}]"'
