"""Hooks that read the grid of the tokens, where the model knows it, and have the tables at hand that graphs read."""

import math
import operator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..steps.clock import Call
from ..tokens.grid import Grid
from ..tokens.tables import Key, Table
from .checkpointing import Memory, is_recomputing
from .compiling import assume_constant_result, is_compiling, outside_graphs, real_tensors, stays_eager
from .modules import Context, Hook, add_pre_hook, first
from .state import BlockCall


class GridReader(Hook):
    """Notes the grid of the tokens that the layers inside a holder are about to see.

    Graphs find the tables of their layers on attributes (`LayerHook.graph_table`), exchanged outside of graphs
    when the size changes: one compiled graph serves all sizes. Where the whole model is inside of a larger graph,
    nothing runs outside, and there is one graph for each grid.
    """

    def __init__(self, layer: Any, context: Context) -> None:
        super().__init__(context)
        self.grid_of, self.scale = layer.grid_of, layer.scale
        self.memory = Memory()
        self.layers: list[LayerHook] = []
        self.provided: tuple[Any, ...] = ()  # the grid and the device that the graph_tables are for
        self.graph_grid: Tensor | None = None  # that grid as the size of a tensor, which may be a symbol in a graph
        self.own_grid: Grid | None = None  # of a graph that cannot use them
        add_pre_hook(layer.holder, self.before)

    @stays_eager
    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = first(args, kwargs)
        self.before_in_graph(x) if is_compiling() else self.read(x)

    @outside_graphs
    def read(self, x: Any) -> None:
        state = self.context.state
        if state.is_inference:
            block = self.block_call(x)
        else:
            block = self.memory.choose(x, lambda: self.block_call(x), state.training, state.in_model)
        state.block = block
        state.recomputed_holder = None if state.in_model else self  # as kohya and older diffusers do
        if block.call.active:
            self.provide_tables(block.grid, x.device)

    def block_call(self, x: Tensor) -> BlockCall:
        grid = self.grid_of(x)
        return BlockCall(self.context.current_call(), grid, math.prod(grid), x.shape[0])

    def provide_tables(self, grid: Grid, device: torch.device) -> None:
        """Puts the tables for this grid where graphs find them."""
        if (grid, device) != self.provided:
            for layer in self.layers:
                layer.graph_tables = [self.context.tables.prepare(key, grid, device).by_key[key] for key in layer.keys]
            self.provided, self.graph_grid = (grid, device), torch.empty((), device=device).expand(grid)

    def expect(self, latents: Tensor) -> None:
        """The same for the grid that these latents lead to. A graph that finds another one does without."""
        grid = tuple(-(-length // 2**self.scale) for length in latents.shape[-2:])
        try:
            self.provide_tables(grid, latents.device)
        except ValueError:
            self.provided, self.graph_grid = (), None  # too small for the factor: said when it is really met

    def before_in_graph(self, x: Tensor) -> None:
        self.note_graph()
        grid, known = self.grid_of(x), self.graph_grid
        if known is not None and grid[0] == known.shape[0] and grid[1] == known.shape[1]:
            self.own_grid = None
            return
        # operator.index: a size may be a symbol, and without tables at hand one graph per grid is wanted
        own = tuple(operator.index(length) for length in grid)
        self.own_grid = own if self.build_tables(own, x.device) else None

    @assume_constant_result
    def note_graph(self) -> None:
        """Runs while a graph is traced, and never again."""
        self.context.inputs.traced = True

    @assume_constant_result
    def build_tables(self, grid: Grid, device: torch.device) -> bool:
        """Runs while a graph is traced, and never again: no graph contains the building of a table."""
        with real_tensors():
            for layer in self.layers:
                found = [self.context.tables.find(key, grid, device, pin=True) for key in layer.keys]
                layer.own_tables[grid] = found
        return True

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"provided": (), "graph_grid": None}


class LayerHook(Hook):
    """Base of the hooks that reduce the tokens of one layer."""

    def __init__(
        self, layer: Any, number: int, settings: tuple[Any, ...], reader: GridReader, context: Context
    ) -> None:
        super().__init__(context)
        # without the model: a part of it that is copied takes its hooks along, and nothing else
        self.layer = replace(layer, root=None, net=None)
        self.keys, self.reader = [(number, setting) for setting in settings], reader
        self.memory = Memory()
        self.graph_tables: list[Table | None] = []  # for the grid that the reader provides, now and later
        self.own_tables: dict[Grid, list[Table | None]] = {}  # for graphs that cannot use them
        reader.layers.append(self)
        add_pre_hook(layer.block, self.before_block)
        if layer.recomputed is not None:
            add_pre_hook(layer.recomputed, self.before_inside)

    def refresh(self) -> None:
        """Follows what was changed on the layer since the last call. Called outside of graphs."""

    @stays_eager
    def before_block(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not is_compiling() and not self.context.state.is_inference:
            self.enter_block(first(args, kwargs))

    @outside_graphs
    def enter_block(self, x: Tensor) -> None:
        """Notes the call that x belongs to, which may be an earlier one that is computed again."""
        state = self.context.state
        inside = state.in_model or state.recomputed_holder is self.reader
        state.block = self.memory.choose(x, lambda: state.block, state.training, inside)

    @stays_eager
    def before_inside(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Blocks that checkpoint their own inside are not called again, but their first layer sees the same input."""
        if not is_compiling() and is_recomputing():
            self.before_block(module, args, kwargs)

    def table_in_graph(self, tokens: int) -> Table | None:
        """The table for so many tokens, in a graph; None where they are not those of the grid."""
        own, grid = self.reader.own_grid, self.reader.graph_grid
        if not self.context.inputs.active:
            return None
        if own is not None:
            tables = self.own_tables.get(own) if tokens == math.prod(own) else None
        else:
            tables = self.graph_tables if grid is not None and tokens == grid.numel() else None
        return None if tables is None else tables[-1] if self.context.inputs.late else tables[0]

    def key_for(self, call: Call) -> Key:
        """What its table in this call is found by."""
        return self.keys[-1] if call.late else self.keys[0]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"graph_tables": [], "own_tables": {}}
