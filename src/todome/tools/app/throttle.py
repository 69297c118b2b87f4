"""Slow-down of guessed passwords: so many tries a minute for each address, and in all."""

import time
from collections import OrderedDict

WINDOW = 60.0  # seconds
TRIES = 5  # of one address in a window
TRIES_IN_ALL = 100  # addresses can be made up behind a proxy, or be many
ADDRESSES = 1024  # that are remembered; the oldest are forgotten


class TryCount:
    """Tries since a window began."""

    def __init__(self, most: int) -> None:
        self.most, self.count, self.end = most, 0, 0.0

    def seconds_left(self, now: float) -> float:
        """Seconds until another try is allowed; 0 where it is allowed now."""
        if now >= self.end:
            self.count, self.end = 0, now + WINDOW
        return self.end - now if self.count >= self.most else 0.0


class LoginThrottle:
    """Tries to log in, counted by address. A right password takes its try back."""

    def __init__(self) -> None:
        self.in_all = TryCount(TRIES_IN_ALL)
        self.addresses: OrderedDict[str, TryCount] = OrderedDict()

    def try_once(self, address: str) -> float:
        """Counts a try before its password is looked at. Returns the seconds to wait where there were too many."""
        now = time.monotonic()
        own = self.addresses.setdefault(address, TryCount(TRIES))
        if len(self.addresses) > ADDRESSES:
            self.addresses.popitem(last=False)
        seconds = max(own.seconds_left(now), self.in_all.seconds_left(now))
        if not seconds:
            own.count += 1
            self.in_all.count += 1
        return seconds

    def forgive(self, address: str) -> None:
        self.addresses.pop(address, None)
        self.in_all.count = max(0, self.in_all.count - 1)
