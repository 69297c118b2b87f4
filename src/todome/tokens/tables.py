"""Tables of one patch, by layer, grid and device: built once, and dropped when the sizes are no longer used."""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

from .grid import Grid, RowTable
from .matching import MatchTable

Table: TypeAlias = RowTable | MatchTable
Key: TypeAlias = tuple[int, Any]  # the number of a layer among all of a patch, and its setting
GRIDS_IN_USE = 8  # these many, those of the last calls, are kept whatever their size
SPARE_BYTES = 16 * 2**20  # of the tables of all other grids
LEAST_BYTES = 2**16  # that a grid counts for, so that the number of those that are left dense is bounded too


class GridTables:
    """Tables of all layers for one grid on one device."""

    def __init__(self) -> None:
        self.by_key: dict[Key, Table | None] = {}  # None where a layer is left dense
        self.met: set[int] = set()  # the layers that were called with these tokens: others only have a table at hand
        self.last_used = 0
        self.pinned = False  # whether a compiled or captured graph reads them

    @property
    def bytes(self) -> int:
        tensors = [tensor for table in self.by_key.values() if table is not None for tensor in table]
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors if isinstance(tensor, torch.Tensor)]
        return max(sum(sizes), LEAST_BYTES)


class TableCache:
    """Least recently used cache of tables. A dropped table is built again from its seed, bit for bit."""

    def __init__(
        self,
        build: Callable[[Key, Grid], Table | None],
        grids_in_use: int = GRIDS_IN_USE,
        spare_bytes: int = SPARE_BYTES,
    ) -> None:
        self.build, self.grids_in_use, self.spare_bytes = build, grids_in_use, spare_bytes
        self.reset()

    def reset(self) -> None:
        self.grids: dict[tuple[Grid, torch.device], GridTables] = {}
        self.reduces = False  # whether any table so far leaves fewer tokens
        self.uses = itertools.count(1)
        self.lock = threading.Lock()

    def find(self, key: Key, grid: Grid, device: torch.device, pin: bool = False) -> Table | None:
        """The table of a layer that is called with these tokens; None where it is left dense."""
        found = self.prepare(key, grid, device)
        found.met.add(key[0])
        found.pinned |= pin
        return found.by_key[key]

    def at_hand(self, key: Key, grid: Grid, device: torch.device, pin: bool) -> Table | None:
        """The table of a layer that may be called with these tokens."""
        found = self.prepare(key, grid, device)
        found.pinned |= pin
        return found.by_key[key]

    def prepare(self, key: Key, grid: Grid, device: torch.device) -> GridTables:
        """Has the table of a layer ready, on the device of its attention."""
        found = self.grids.get((grid, device))
        if found is None or key not in found.by_key:
            found = self.add(key, grid, device)
        found.last_used = next(self.uses)
        return found

    def add(self, key: Key, grid: Grid, device: torch.device) -> GridTables:
        with torch.inference_mode(False):  # training may use them too
            table = self.build(key, grid)
            table = None if table is None else table.to(device)
        with self.lock:
            found = self.grids.setdefault((grid, device), GridTables())
            found.by_key.setdefault(key, table)
            self.reduces |= table is not None
            found.last_used = next(self.uses)
            self.drop_unused()
        return found

    def drop_unused(self) -> None:
        by_age = sorted(self.grids.items(), key=lambda item: item[1].last_used)
        spare = [(key, tables) for key, tables in by_age[: -self.grids_in_use] if not tables.pinned]
        excess = sum(tables.bytes for _, tables in spare) - self.spare_bytes
        for key, tables in spare:
            if excess <= 0:
                return
            excess -= tables.bytes
            del self.grids[key]

    def grids_of(self, layers: list[int], prepared: bool = False) -> Iterator[Grid]:
        """The grids in the cache that any of the layers was called with or, if asked for, has a table at hand for."""
        for (grid, _), tables in list(self.grids.items()):
            if not ({layer for layer, _ in list(tables.by_key)} if prepared else tables.met).isdisjoint(layers):
                yield grid

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in ("build", "grids_in_use", "spare_bytes")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)
