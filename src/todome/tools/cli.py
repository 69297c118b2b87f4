"""Entry point of the command `todome`. The commands are in `todome.tools.commands`, one file each."""

import os
import sys

from .extras import missing_package


def main() -> None:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it misses a torchvision that nothing here uses
    try:
        from .commands import app
    except ModuleNotFoundError as error:
        sys.exit(missing_package(error))
    except KeyboardInterrupt:
        sys.exit(130)
    app(prog_name="todome")
