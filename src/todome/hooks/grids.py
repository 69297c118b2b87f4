"""Hooks that read the grid of the tokens, where the model knows it."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..tokens.grid import Grid
from .attaching import Hook, add_pre_hook, first
from .checkpointing import Memory
from .compiling import assume_constant_result, is_compiling, is_hook, real_tensors
from .graphs import GraphGrid, whole
from .state import BlockCall, ModelCall, TokenCall
from .tokens import TokenState


class GridReader(Hook):
    """Notes the grid of the tokens that the layers inside a holder are about to see."""

    def __init__(self, layer: Any, tokens: TokenState) -> None:
        super().__init__(tokens.patched)
        self.tokens, self.state, self.grid_of, self.scale = (
            tokens,
            tokens.patched.shared.state,
            layer.grid_of,
            layer.scale,
        )
        self.memory = Memory()
        self.graph = GraphGrid()
        self.layers: list[Any] = []
        add_pre_hook(layer.holder, self.before)

    @is_hook
    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = first(args, kwargs)
        self.before_in_graph(x) if is_compiling() else self.read(x)

    def read(self, x: Any) -> None:
        state, call = self.state, self.state.call
        if call is not None and not state.training:
            block = self.block_call(x, call.tokens)
        else:
            for layer in self.layers:
                layer.hook_block()
            block = self.memory.choose(
                x, lambda: self.block_call(x, self.tokens.current_call()), state.training, state.in_model
            )
        state.block = block
        state.recomputed_holder = None if call is not None else self  # as kohya and older diffusers do
        if self.tokens.graph.traced and block.call.part is not None:
            self.provide(block.grid, x.device)

    def block_call(self, x: Tensor, call: TokenCall) -> BlockCall:
        grid = self.grid_of(x)
        return BlockCall(call, grid, math.prod(grid), x.shape[0])

    def provide(self, grid: Grid, device: torch.device) -> None:
        if (grid, device) != self.graph.provided:
            found = [self.tokens.tables_of(layer.number, grid, device) for layer in self.layers]
            for layer, tables in zip(self.layers, found, strict=True):
                layer.graph.at_hand = tables
            self.graph.provide(grid, device)

    def expect(self, call: ModelCall) -> None:
        """Has tables at hand for the grid that these latents lead to. A graph that finds another one does without."""
        grid = tuple(-(-length // 2**self.scale) for length in call.size)
        try:
            self.provide(grid, call.device)
        except ValueError:
            self.graph.forget()  # too small for the factor: said when it is really met

    def before_in_graph(self, x: Tensor) -> None:
        self.note_graph()
        grid, graph = self.grid_of(x), self.graph
        if graph.fits(grid):
            graph.own_grid = None
            return
        own = whole(grid)
        graph.own_grid = own if self.build_tables(own, x.device) else None

    @assume_constant_result
    def note_graph(self) -> None:
        """Runs while a graph is traced, and never again: from now on graphs have at hand what they read."""
        self.tokens.note_graph()
        state = self.state
        if state.call is not None and not self.graph.provided:
            with real_tensors():
                self.expect(state.call) if state.block is None else self.provide(state.block.grid, state.call.device)

    @assume_constant_result
    def build_tables(self, grid: Grid, device: torch.device) -> bool:
        """Runs while a graph is traced, and never again: no graph contains the building of a table."""
        with real_tensors():
            for layer in self.layers:
                layer.graph.of_grid[grid] = self.tokens.tables_of(layer.number, grid, device, pin=True)
        return True
