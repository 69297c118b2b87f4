"""Fewer keys: rows are selected before an attention layer projects its tokens to keys and values (ToDo).

So the projections shrink too. Attention that is known to do no more takes the rows as its context. Where it has a
processor of another kind, or something around it that may regroup its tokens (HyperTile), the rows are selected at the
projections themselves, where the tokens really arrive.
"""

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from ..levers.checks import format_grid
from ..levers.downsample import Downsample
from ..levers.layers import DownsampleLayers
from ..tokens.grid import Grid, RowTable, downsampling_table, kept_rows, tile_of
from .attaching import Arguments, add_argument_hook, add_pre_hook, first, remove_hooks_on
from .compiling import is_compiling, is_hook
from .layers import LayerHook
from .registry import attaches
from .state import BlockCall


@attaches(Downsample)
class KeptKeys(LayerHook):
    """Gives one self-attention the kept rows of its tokens to make keys and values of."""

    def __init__(self, layer: Any, *common: Any) -> None:
        super().__init__(layer, *common)
        self.projections: tuple[nn.Module, ...] = ()  # those that are hooked
        self.seen: tuple[Any, ...] = ()  # what decides how it is hooked
        self.needs_all = layer.needs_all_keys(layer.attention)
        add_pre_hook(layer.attention, self.before_attention)

    @staticmethod
    def check(layer: Any) -> None:
        layer.check(layer.attention)

    @staticmethod
    def build_table(lever: Any, setting: Any, grid: Grid, seed: int) -> RowTable:
        return downsampling_table(grid, lever.factor_on(grid, setting), lever.phase, seed)

    def refresh(self) -> None:
        own = vars(self.layer.attention)
        seen = (own.get("processor"), own.get("forward"))
        if seen != self.seen or self.projections:
            self.seen = seen
            self.follow(self.layer.attention)

    def follow(self, attention: Any) -> None:
        """Hooks an attention that was set up anew as its processor needs it."""
        self.layer.check(attention)
        self.needs_all = self.layer.needs_all_keys(attention)
        handed = self.layer.takes_kept_rows(attention)
        if self.projections or not handed:
            self.hook_projections(() if handed else (attention.to_k, attention.to_v))

    def hook_projections(self, wanted: tuple[nn.Module, ...]) -> None:
        """Hooks these and no others: adapters (LoRA) may have been put around those of before."""
        if [*map(id, wanted)] != [*map(id, self.projections)]:
            for module in self.projections:
                remove_hooks_on(module, self)
            for module in wanted:
                add_argument_hook(module, self.before_projection)
            self.projections = wanted

    @is_hook
    def before_attention(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """Hands the attention the kept rows of its own input as context: selecting commutes with projecting."""
        given = kwargs.get(self.layer.context) is not None or (len(args) > 1 and args[1] is not None)
        if given or self.projections:
            return None
        x = args[0] if args else first(args, kwargs)  # (batch, tokens, channels)
        rows = self.rows_for(x)
        return None if rows is None else (args, kwargs | self.kept_arguments(x, rows, kwargs))

    def kept_arguments(self, x: Tensor, rows: Tensor, kwargs: dict[str, Any]) -> dict[str, Tensor]:
        kept = x.index_select(1, rows)  # (batch, kept, channels)
        extra = kwargs.get(self.layer.extra_tokens)  # in front of the queries, so they belong to the keys as well
        changed = {self.layer.context: kept if extra is None else torch.cat([extra, kept], 1)}
        for name, mask in token_masks(kwargs, self.layer.masks, x.shape[1]):
            changed[name] = mask.index_select(-1, rows)
        return changed

    @is_hook
    def before_projection(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Selects rows where keys and values are projected: there the attention really sees its tokens."""
        rows = self.rows_for(args[0])
        return None if rows is None else (args[0].index_select(1, rows), *args[1:])

    def rows_for(self, x: Tensor) -> Tensor | None:
        """The rows of these tokens that are kept in this call; None where all are."""
        if self.needs_all:
            return None
        return self.rows_in_graph(x) if is_compiling() else self.rows_in_call(x)

    def rows_in_graph(self, x: Tensor) -> Tensor | None:
        table = self.table_in_graph(x.shape[1])
        return kept_rows(table, self.tokens.graph.phase.to(x.device)) if isinstance(table, RowTable) else None

    def rows_in_call(self, x: Tensor) -> Tensor | None:
        state, tokens = self.state, x.shape[1]
        block = state.block
        if block is None or block.call.part is None:
            return None
        grid = block.grid if tokens == block.tokens else self.tiles_of(x, block)
        table = None if grid is None else self.table_in_call(grid, x.device, block.call)
        # A number costs no kernel, but a captured graph would keep it for ever.
        phase = self.tokens.graph.phase.to(x.device) if state.capturing else block.call.phase_index
        return kept_rows(table, phase) if isinstance(table, RowTable) else None

    def tiles_of(self, x: Tensor, block: BlockCall) -> Grid | None:
        """The tiles of the grid that these tokens are; None where they are something else, or it cannot be told."""
        tiles = x.shape[0] // block.batch
        if tiles > 1 and x.shape[0] * x.shape[1] == block.batch * block.tokens:
            tile = tile_of(block.grid, tiles)
            if tile is not None:
                return tile
            self.warn_of_tiles(block, tiles)
        return None

    def warn_of_tiles(self, block: BlockCall, tiles: int) -> None:
        if self.patched.shared.says_now("tiles"):
            grid = format_grid(block.grid)
            warnings.warn(
                f"Attention sees its {grid} tokens in {tiles} tiles, which can be cut in several ways: such layers are "
                "left dense. Turn HyperTile off to reduce them.",
                stacklevel=2,
            )


def token_masks(kwargs: dict[str, Any], names: tuple[str, ...], tokens: int) -> list[tuple[str, Tensor]]:
    """The masks among the arguments of an attention that speak of single tokens."""
    masks = [(name, kwargs[name]) for name in names if kwargs.get(name) is not None]
    return [(name, mask) for name, mask in masks if mask.shape[-1] == tokens]


@attaches(DownsampleLayers)
class PlannedKeys(KeptKeys):
    """Kept keys of a layer whose factor was measured on pictures of one size."""

    @staticmethod
    def build_table(lever: Any, setting: Any, grid: Grid, seed: int) -> RowTable:
        if math.prod(grid) != setting.tokens:
            share = f"{math.prod(grid) / setting.tokens:.2g}"
            warnings.warn(
                f"This plan was measured on pictures of another size; here are {share} times as many tokens. About as "
                "many keys are kept as there; how close and how fast that is was not measured.",
                stacklevel=2,
            )
        return KeptKeys.build_table(lever, setting, grid, seed)
