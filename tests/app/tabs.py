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
    tab.on("request", requests.add)
    tab.on("requestfinished", requests.discard)
    tab.on("requestfailed", requests.discard)
    tab.goto(url)
    return tab


def reload(tab: Any) -> None:
    """When nothing is under way but the heartbeat of the page: what leaving cuts off is an error in the console."""
    for _ in range(400):
        if not waited_for(tab):
            break
        tab.wait_for_timeout(50)
    assert not waited_for(tab)
    tab.reload()


def waited_for(tab: Any) -> list[str]:
    return [request.url for request in UNDER_WAY[tab] if "/heartbeat/" not in request.url]
