"""The cache of tables: found by layer, grid and device, bounded, and the same again after a table was dropped."""

import copy
import pickle
import threading
from typing import Any

import pytest
import torch
from zoo import run, small_unet, unet_inputs

import todome
from todome import Downsample, Merge
from todome.reductions import layer_table
from todome.tokens import tables
from todome.tokens.grid import RowTable
from todome.tokens.tables import TableCache

CPU = torch.device("cpu")


def build(layer: int, grid) -> Any:
    return layer_table(Downsample(factor=(2, 2)), [2, 2], layer, grid)


def size_of(cache: TableCache) -> int:
    return sum(found.bytes for found in cache.grids.values())


def test_a_table_is_built_once():
    cache = TableCache(build)
    first = cache.find(0, (8, 8), CPU)
    assert cache.find(0, (8, 8), CPU) is first
    assert cache.find(1, (8, 8), CPU) is not first


def test_tables_are_by_device():
    cache = TableCache(build)
    here, there = cache.find(0, (8, 8), CPU), cache.find(0, (8, 8), torch.device("meta"))
    assert isinstance(here, RowTable)
    assert isinstance(there, RowTable)
    assert (here.rows.device.type, there.rows.device.type) == ("cpu", "meta")
    assert cache.find(0, (8, 8), CPU) is here


def test_tables_take_32_bits():
    table = TableCache(build).find(0, (8, 9), CPU)
    assert isinstance(table, RowTable)
    assert table.rows.dtype == torch.int32


def test_tables_of_sizes_that_are_no_longer_used_are_dropped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "SPARE_BYTES", 2**20)
    cache = TableCache(build)
    for side in range(64, 128):
        for layer in (0, 1):
            cache.find(layer, (side, side), CPU)
    largest = max(found.bytes for found in cache.grids.values())
    assert size_of(cache) <= 2**20 + tables.GRIDS_IN_USE * largest
    assert (127, 127) in [grid for grid, _ in cache.grids]
    assert (64, 64) not in [grid for grid, _ in cache.grids]


def test_dense_sizes_do_not_pile_up_either():
    cache = TableCache(lambda layer, grid: None)
    for side in range(2, 2000):
        cache.find(0, (side, side), CPU)
    assert len(cache.grids) <= tables.SPARE_BYTES // tables.LEAST_BYTES + tables.GRIDS_IN_USE + 1


def test_what_a_graph_reads_is_never_dropped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "SPARE_BYTES", 0)
    cache = TableCache(build)
    pinned = cache.find(0, (8, 8), CPU, pin=True)
    for side in range(10, 60):
        cache.find(0, (side, side), CPU)
    assert cache.find(0, (8, 8), CPU) is pinned


def test_a_dropped_table_is_the_same_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "SPARE_BYTES", 0)
    monkeypatch.setattr(tables, "GRIDS_IN_USE", 1)
    model = small_unet()
    patch = todome.apply(model, Downsample(factor=(2, 2)))
    outputs = []
    for grid in [(16, 18), (12, 20), (14, 14), (16, 18)]:
        patch.at(1, 4)
        outputs.append(run(model, **unet_inputs(2, grid)))
    assert torch.equal(outputs[0], outputs[3])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_a_copy_of_the_cache_is_empty_and_builds_the_same(copied):
    cache = TableCache(build)
    table = cache.find(0, (8, 8), CPU)
    twin = copied(cache)
    assert twin.grids == {}
    again = twin.find(0, (8, 8), CPU)
    assert isinstance(table, RowTable)
    assert table.rows.equal(again.rows)


def test_threads_find_the_same_tables():
    cache, found = TableCache(build), []

    def look() -> None:
        found.append([cache.find(0, (side, 10), CPU) for side in range(4, 40)])

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a is b for other in found for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("reduction", [Downsample(factor=2), Merge()], ids=repr)
def test_nothing_grows_with_the_number_of_applies(reduction):
    import gc

    model = small_unet()
    for _ in range(3):
        todome.apply(model, reduction)
        run(model, **unet_inputs())
    todome.remove(model)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(20):
        todome.apply(model, reduction)
        run(model, **unet_inputs())
    todome.remove(model)
    gc.collect()
    assert len(gc.get_objects()) - before < 200
