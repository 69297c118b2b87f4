"""Histories of all visitors, by the cookie of their browser, so that they are still there after a reload."""

import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from .session import Session

COOKIE = "todome_visitor"
TOKEN = re.compile(r"[\w-]{16,64}")
KEPT_SECONDS = 24 * 3600  # after the last visit


def new_cookie() -> bytes:
    """Header that names a visitor to this page alone: no script can read it, no other site can send it."""
    return f"{COOKIE}={secrets.token_urlsafe(16)}; Path=/; HttpOnly; SameSite=Strict; Max-Age={KEPT_SECONDS}".encode()


def visitor_in(cookies: str) -> str | None:
    """Visitor in a Cookie header."""
    found = [part.partition("=") for part in cookies.split(";")]
    return next((value for name, _, value in found if name.strip() == COOKIE and TOKEN.fullmatch(value)), None)


class Kept(NamedTuple):
    session: Session
    until: float


class Visitors:
    """Sessions by visitor, those who were here last at the end.

    Args:
        most: Visitors who are remembered. Those who were away for longest are forgotten, with their files.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.lock = threading.Lock()
        self.kept: OrderedDict[str, Kept] = OrderedDict()

    def session(self, visitor: str) -> Session:
        return self.change(visitor, lambda session: session)

    def change(self, visitor: str, change: Callable[[Session], Session]) -> Session:
        """Changes the session of a visitor, one at a time, and returns it."""
        with self.lock:
            before = self.kept.pop(visitor, None)
            session = change(before.session if before else Session())
            self.kept[visitor] = Kept(session, time.monotonic() + KEPT_SECONDS)
            self.forget_others()
            return session

    def forget(self, visitor: str) -> None:
        with self.lock:
            gone = self.kept.pop(visitor, None)
        if gone is not None:
            gone.session.delete_files()

    def forget_others(self) -> None:
        """Forgets those who are too many, or were away for too long."""
        now = time.monotonic()
        while self.kept and (len(self.kept) > self.most or next(iter(self.kept.values())).until < now):
            self.kept.popitem(last=False)[1].session.delete_files()
