"""Engines: who works through many items, in this process (`here`) or on a Ray cluster (`on_ray`).

A worker is opened once in every place, and then called with one item after the other. Items and results are small:
pictures go from the worker to their files. Batches, evaluations and whatever else draws much ask an engine, and do not
know which.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol


class Place(NamedTuple):
    """Where a worker works: its name, for people, and its device; "auto" is the GPU if there is one."""

    name: str
    device: str


class Worker(Protocol):
    """The work on one item. It is copied to its place before it is opened, so it must be small until then."""

    def open(self, place: Place) -> None:
        """Called once, before the first item: here pipelines are opened."""
        ...

    def work(self, item: Any) -> Any:
        """Called for every item. The same item may come again, after a worker was lost: its result is to be the same.

        What it raises ends the whole run. What concerns an item alone is to be told in its result.
        """
        ...

    def close(self) -> None:
        """Called after the last item, unless the process of the worker just ends."""
        ...


class Engine(Protocol):
    """Somebody who has workers."""

    remote: bool  # whether they are in other processes, and perhaps on other machines

    def run(self, worker: Worker, items: Sequence[Any], title: str) -> Iterator[Any]:
        """The result of every item, each once, as they come. Closing the iterator ends the work."""
        ...
