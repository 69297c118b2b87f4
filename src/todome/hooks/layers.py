"""Hooks on the layers of a model: which layers, what each is set to, and its table in each call.

In eager code a call is the state of the thread. In a graph it is what `graphs` has at hand.
"""

import functools
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..levers.lever import Level, Parts, TokenLever
from ..tokens.grid import Grid
from ..tokens.tables import Key, Table, TableCache
from .attaching import Hook, add_pre_hook, first
from .checkpointing import Memory, is_recomputing
from .compiling import is_compiling, is_hook, outside_graphs
from .graphs import GraphTables
from .grids import GridReader
from .patched import PatchedModel
from .registry import Places
from .state import TokenCall
from .tokens import TokenPart, TokenState


class LayerHook(Hook):
    """Base of the hooks that reduce the tokens of one layer."""

    def __init__(self, layer: Any, number: int, reader: GridReader) -> None:
        super().__init__(reader.patched)
        # without the model: a part of it that is copied takes its hooks along, and nothing else
        self.layer = replace(layer, root=None, net=None)
        self.number, self.reader, self.tokens, self.state = number, reader, reader.tokens, reader.state
        self.settings = self.tokens.parts.settings[number]  # in each part of a run
        self.memory = Memory()
        self.hooks_block = False
        self.graph = GraphTables()
        reader.layers.append(self)

    @classmethod
    def places(cls, lever: TokenLever, models: Sequence[nn.Module]) -> "TokenPlaces":
        return TokenPlaces(lever, models, cls)

    @staticmethod
    def check(layer: Any) -> None:
        """Raises where the layer cannot be hooked as it is set up now."""

    @staticmethod
    @abstractmethod
    def build_table(lever: Any, setting: Any, grid: Grid, seed: int) -> Table:
        """The table of a grid for a layer with this setting and a seed of its own."""

    def refresh(self) -> None:
        """Follows what was changed on the layer since the last call. Called outside of graphs."""

    def hook_block(self) -> None:
        """Follows the calls of the block itself from now on: where gradients are wanted, one may be computed again."""
        if not self.hooks_block:
            self.hooks_block = True
            add_pre_hook(self.layer.block, self.before_block)
            if self.layer.recomputed is not None:
                add_pre_hook(self.layer.recomputed, self.before_inside)

    @is_hook
    def before_block(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not is_compiling() and not self.state.is_inference:
            self.enter_block(first(args, kwargs))

    def enter_block(self, x: Tensor) -> None:
        """Notes the call that x belongs to, which may be an earlier one that is computed again."""
        state = self.state
        inside = state.in_model or state.recomputed_holder is self.reader
        state.block = self.memory.choose(x, lambda: state.block, state.training, inside)

    @is_hook
    def before_inside(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Blocks that checkpoint their own inside are not called again, but their first layer sees the same input."""
        if not is_compiling() and is_recomputing():
            self.before_block(module, args, kwargs)

    def table_in_graph(self, tokens: int) -> Table | None:
        """The table for so many tokens, in a graph; None where they are not those of the grid."""
        self.reader.note_graph()
        part = self.tokens.graph.part
        return None if part is None else self.graph.find(self.reader.graph, tokens, part)

    def table_in_call(self, grid: Grid, device: torch.device, call: TokenCall) -> Table | None:
        """The table for a grid, in eager code."""
        setting = None if call.part is None else self.settings[call.part]
        if setting is None:
            return None
        return self.tokens.tables.find((self.number, setting), grid, device, self.state.capturing)


@outside_graphs
def layer_table(lever: TokenLever, hook: type[LayerHook], key: Key, grid: Grid) -> Table | None:
    """The table of a layer with a setting; None where all of its tokens stay."""
    number, setting = key
    if lever.kept_count(grid, setting) == math.prod(grid):
        return None
    return hook.build_table(lever, setting, grid, lever.seed_of(number))


class TokenPlaces(Places):
    """The layers of some models, in each of which a hook of one class leaves out tokens."""

    def __init__(self, lever: TokenLever, models: Sequence[nn.Module], hook: type[LayerHook]) -> None:
        from ..hosts import find_layers  # hosts ask for hooks too

        self.lever, self.hook = lever, hook
        self.looked_at = models
        self.layers = find_layers(*models)
        self.models = list(dict.fromkeys(layer.root for layer in self.layers))
        self.parts = lever.parts(self.layers) if self.layers else Parts((), ())
        self.numbers = [number for number in range(len(self.layers)) if self.parts.is_reduced(number)]
        for number in self.numbers:
            hook.check(self.layers[number])
        self.tables = TableCache(functools.partial(layer_table, lever, hook))
        self.states: list[TokenState] = []

    def refusal(self, target: str) -> Exception:
        from ..hosts import nothing_to_reduce

        return nothing_to_reduce(target, self.looked_at)

    def attach(self, model: nn.Module, patched: PatchedModel) -> TokenPart:
        state = TokenState(self.lever, self.parts, self.tables, patched)
        self.states.append(state)
        readers: dict[nn.Module, GridReader] = {}
        for number, layer in ((number, self.layers[number]) for number in self.numbers):
            if layer.root is model:
                if layer.holder not in readers:
                    readers[layer.holder] = GridReader(layer, state)
                self.hook(layer, number, readers[layer.holder])
        return TokenPart(state, list(readers.values()))

    @property
    def levels(self) -> list[Level]:
        """What is reduced, level by level, with the grids of recent calls."""
        return [self.level(level) for level in sorted({layer.level for layer in self.layers})]

    def level(self, level: int) -> Level:
        numbers = [number for number, layer in enumerate(self.layers) if layer.level == level]
        traced = any(state.graph.traced for state in self.states)
        grids = sorted(set(self.tables.grids_of(numbers, prepared=traced)), reverse=True)
        reduced = [number for number in numbers if number in self.numbers]
        return self.lever.level(level, self.parts, reduced, grids, len(numbers))

    def lines(self) -> list[str]:
        start, stop = self.lever.start, self.lever.stop
        window = [] if (start, stop) == (0, 1) else [f"from {start:.0%} to {stop:.0%} of the steps"]
        return [*window, *map(self.lever.describe, self.levels)]
