"""Signals that end the page: SIGINT (Ctrl+C), SIGTERM and, where a terminal is closed, SIGHUP."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SECOND_SIGNAL = 130  # exit code, as shells have it for a command that Ctrl+C ended


@contextmanager
def interrupt_on_signals(clean_up: Callable[[], None]) -> Iterator[None]:
    """Raises KeyboardInterrupt in the main thread at the first signal; the second one ends the process at once.

    Also where SIGINT is ignored, as in a process that a script started with `&`: Python then handles none by itself.

    Args:
        clean_up: Called before the process is ended at once.
    """
    received = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            raise KeyboardInterrupt
        clean_up()
        os._exit(SECOND_SIGNAL)

    before = {number: signal.signal(number, handle) for number in handled_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def handled_signals() -> list[signal.Signals]:
    """SIGHUP is left alone where it is ignored: that is what `nohup` is for."""
    found = [signal.SIGINT, signal.SIGTERM]
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        found.append(hangup)
    return found
