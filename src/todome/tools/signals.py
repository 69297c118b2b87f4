"""Signals that end a command: SIGINT, which Ctrl+C sends, and SIGTERM."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM was received: a command ends as with Ctrl+C, but for its exit status."""


def end_at_once(number: int, frame: Any) -> NoReturn:
    """For as long as nothing is begun: an exception in the middle of an import could come out as anything."""
    os.write(2, b"Interrupted.\n")
    os._exit(128 + number)


def interrupt(number: int, frame: Any) -> NoReturn:
    """For when there is something to finish: files to remove, a sentence on what is kept."""
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def exit_status(error: KeyboardInterrupt) -> int:
    """As shells have it."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


def on_signals(handler: Callable[[int, Any], NoReturn]) -> dict[int, Any]:
    """Has both signals handled so, but for those that are ignored, as by `nohup`. Returns what handled them before."""
    handled = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in handled}


@contextmanager
def raised_signals() -> Iterator[None]:
    """Signals raise KeyboardInterrupt or Terminated in the main thread for as long as the block takes."""
    before = on_signals(interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
