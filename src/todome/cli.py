"""The command `todome`. The commands are in `todome.commands`, one file each."""

import os
import sys


def main() -> None:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it misses a torchvision that nothing here uses
    try:
        from .commands import app
    except ModuleNotFoundError as error:
        sys.exit(lacking(error))
    app(prog_name="todome")


def lacking(error: ModuleNotFoundError) -> str:
    """What to say where a package is not installed."""
    return f'Error: This needs {error.name}, which is missing. Install it: pip install "todome[demo]"'
