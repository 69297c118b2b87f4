"""The cache of tables: found by layer, grid and device, bounded, and the same again after a table was dropped."""

import copy
import functools
import gc
import pickle
import threading

import pytest
import torch
from zoo import mini_unet, run, unet_inputs

import todome
from todome import Downsample, Merge
from todome.hooks.keys import KeptKeys
from todome.hooks.layers import layer_table
from todome.tokens.grid import RowTable
from todome.tokens.tables import LEAST_BYTES, TableCache

CPU = torch.device("cpu")


FIRST, SECOND = (0, 2), (1, 2)  # the numbers of two layers, and their factor
build = functools.partial(layer_table, Downsample(factor=(2, 2)), KeptKeys)


def size_of(cache: TableCache) -> int:
    return sum(found.bytes for found in cache.grids.values())


def test_tables_are_built_once_by_layer_and_device():
    cache = TableCache(build)
    here, there = cache.find(FIRST, (8, 8), CPU), cache.find(FIRST, (8, 8), torch.device("meta"))
    assert isinstance(here, RowTable)
    assert isinstance(there, RowTable)
    assert (here.rows.device.type, there.rows.device.type) == ("cpu", "meta")
    assert here.rows.dtype == there.rows.dtype == torch.int32
    assert cache.find(FIRST, (8, 8), CPU) is here
    assert cache.find(SECOND, (8, 8), CPU) is not here


def test_tables_of_sizes_that_are_no_longer_used_are_dropped():
    cache = TableCache(build, spare_bytes=2**20)
    for side in range(64, 128):
        for layer in (FIRST, SECOND):
            cache.find(layer, (side, side), CPU)
    largest = max(found.bytes for found in cache.grids.values())
    assert size_of(cache) <= 2**20 + cache.grids_in_use * largest
    assert (127, 127) in [grid for grid, _ in cache.grids]
    assert (64, 64) not in [grid for grid, _ in cache.grids]


def test_dense_sizes_do_not_pile_up_either():
    cache = TableCache(lambda layer, grid: None)
    for side in range(2, 2000):
        cache.find(FIRST, (side, side), CPU)
    assert len(cache.grids) <= cache.spare_bytes // LEAST_BYTES + cache.grids_in_use + 1


def test_what_a_graph_reads_is_never_dropped_and_a_dropped_table_is_the_same_again():
    cache = TableCache(build, spare_bytes=0)
    pinned, dropped = cache.find(FIRST, (8, 8), CPU, pin=True), cache.find(FIRST, (9, 8), CPU)
    for side in range(10, 60):
        cache.find(FIRST, (side, side), CPU)
    assert cache.find(FIRST, (8, 8), CPU) is pinned
    again = cache.find(FIRST, (9, 8), CPU)
    assert isinstance(dropped, RowTable)
    assert isinstance(again, RowTable)
    assert again is not dropped
    assert again.rows.equal(dropped.rows)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_a_copy_of_the_cache_is_empty_and_builds_the_same(copied):
    cache = TableCache(build)
    table = cache.find(FIRST, (8, 8), CPU)
    twin = copied(cache)
    assert twin.grids == {}
    again = twin.find(FIRST, (8, 8), CPU)
    assert isinstance(table, RowTable)
    assert table.rows.equal(again.rows)


def test_threads_find_the_same_tables():
    cache, found = TableCache(build), []

    def look() -> None:
        found.append([cache.find(FIRST, (side, 10), CPU) for side in range(4, 40)])

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a is b for other in found for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("reduction", [Downsample(factor=2), Merge()], ids=repr)
def test_nothing_grows_with_the_number_of_applies(reduction):
    model = mini_unet()

    def objects_after(applies: int) -> int:
        for _ in range(applies):
            todome.apply(model, reduction)
            run(model, **unet_inputs())
        todome.remove(model)
        gc.collect()
        return len(gc.get_objects())

    before = objects_after(3)
    assert objects_after(10) - before < 100
