"""Entry point of the command `todome`. The commands are in `todome.tools.commands`, one file each.

Nothing here imports torch before the command has set what torch reads when it is imported.
"""

import os
import sys
from collections.abc import MutableMapping

from .extras import missing_package
from .signals import end_at_once, on_signals

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # each says what threads of OpenMP do while they wait


def main() -> None:
    on_signals(end_at_once)
    prepare(os.environ)
    try:
        from .commands import app
    except ModuleNotFoundError as error:
        sys.exit(missing_package(error))
    app(prog_name="todome")


def prepare(environment: MutableMapping[str, str]) -> None:
    """Sets what suits the command and all processes that it starts, where the user has not.

    Threads of torch that wait for others sleep: by default they spin for some milliseconds, and where another program
    has one of the cores, the thread that all wait for gets no turn. Then a picture takes ten times as long.
    """
    if not any(name in environment for name in WAITING):
        environment["OMP_WAIT_POLICY"] = "passive"
    environment.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it misses a torchvision that nothing here uses
