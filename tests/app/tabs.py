"""Tabs of a real browser: what they say in the console, what they ask for, and what is still under way."""

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary


class Heard(NamedTuple):
    """What was heard of the tabs of a test."""

    said: list[str]
    asked: list[str]


UNDER_WAY: WeakKeyDictionary[Any, set[Any]] = WeakKeyDictionary()  # requests, by tab


def opened(context: Any, url: str, heard: Heard, seconds: int = 60) -> Any:
    """A tab with the page that is there."""
    tab = context.new_page()
    UNDER_WAY[tab] = requests = set()
    tab.set_default_timeout(1000 * seconds)
    tab.on("console", lambda message: heard.said.append(message.text))
    tab.on("pageerror", lambda error: heard.said.append(str(error)))
    tab.on("request", lambda request: heard.asked.append(request.url))
    tab.on("request", lambda request: requests.add(request))
    for end in ("requestfinished", "requestfailed"):
        tab.on(end, lambda request: requests.discard(request))
    tab.goto(url)
    return tab


def settle(tab: Any) -> None:
    """Waits until nothing is under way but the heartbeat of the page: what leaving cuts off is said in the console."""
    for _ in range(400):
        if all("/heartbeat/" in request.url for request in UNDER_WAY[tab]):
            return
        tab.wait_for_timeout(50)


def reload(tab: Any) -> None:
    settle(tab)
    tab.reload()


def close(context: Any) -> None:
    for tab in context.pages:
        settle(tab)
    context.close()
