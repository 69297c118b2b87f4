"""Signals that end a command: SIGINT, which Ctrl+C sends, SIGTERM, and SIGHUP of a terminal that is closed.

Little is imported: they may come early.
"""

import os
import signal


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP was received: a command ends as with Ctrl+C, but for its exit status."""


def end_at_once(number: int, frame: object) -> None:
    """For as long as nothing is begun: an exception in the middle of an import could come out as anything."""
    os.write(2, b"Interrupted.\n")
    os._exit(128 + number)


def interrupt(number: int, frame: object) -> None:
    """For when there is something to finish: files to remove, a sentence on what is kept."""
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def exit_status(error: KeyboardInterrupt) -> int:
    """As shells have it."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


def handle_signals(by_number: dict) -> dict:
    """Has signals handled so, but for those that are ignored, as by `nohup`. Returns what handled them before."""
    heard = [number for number in by_number if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, by_number[number]) for number in heard}


HANGUP = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()  # Windows has none
AT_ONCE = dict.fromkeys((signal.SIGINT, signal.SIGTERM, *HANGUP), end_at_once)
RAISED = dict.fromkeys(AT_ONCE, interrupt)
