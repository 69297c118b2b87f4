"""Entry point of the command `todome`. The commands are in `todome.tools.commands`, one file each.

Nothing here imports torch before the environment says what torch reads when it is imported.
"""

import os
import sys

from .signals import AT_ONCE, handle_signals

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # each says what threads of OpenMP do while they wait


def main() -> None:
    handle_signals(AT_ONCE)
    prepare_environment()
    from .extras import missing_package

    try:
        from .commands import app
    except ModuleNotFoundError as error:
        sys.exit(missing_package(error))
    app(prog_name="todome")


def prepare_environment() -> None:
    """Sets what suits the command and all processes that it starts, where the user has not.

    Threads of torch that wait for others are to sleep. By default they spin for some milliseconds, and where another
    program has one of the cores, the thread that all wait for gets no turn: a picture takes ten times as long.
    """
    if not any(name in os.environ for name in WAITING):
        os.environ["OMP_WAIT_POLICY"] = "passive"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it misses a torchvision that nothing here uses
