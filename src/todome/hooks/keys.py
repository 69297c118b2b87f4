"""Fewer keys: rows are selected before an attention layer projects its tokens to keys and values (ToDo).

So the projections shrink too. Attention that is known to do no more takes the rows as its context. Where it has a
processor of another kind, or something around it that may regroup its tokens (HyperTile), the rows are selected at the
projections themselves, where the tokens really arrive.
"""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from ..reductions import format_grid
from ..tokens.grid import Grid, RowTable, kept_rows, tile_of
from .compiling import is_compiling, outside_graphs, stays_eager
from .grids import LayerHook
from .modules import Arguments, add_argument_hook, add_pre_hook, first, remove_hooks_on
from .state import BlockCall


class KeptKeys(LayerHook):
    """Gives one self-attention the kept rows of its tokens to make keys and values of."""

    def __init__(self, layer: Any, *common: Any) -> None:
        super().__init__(layer, *common)
        self.projections: tuple[nn.Module, ...] = ()  # those that are hooked
        self.needs_all = layer.needs_all_keys(layer.attention)
        add_pre_hook(layer.attention, self.before_attention)

    def refresh(self) -> None:
        attention = self.layer.attention
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

    @stays_eager
    def before_attention(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """Hands the attention the kept rows of its own input as context: selecting commutes with projecting."""
        x = first(args, kwargs)  # (batch, tokens, channels)
        given = kwargs.get(self.layer.context) is not None or (len(args) > 1 and args[1] is not None)
        rows = None if given or self.projections else self.rows_for(x)
        return None if rows is None else (args, {**kwargs, **self.kept_arguments(x, rows, kwargs)})

    def kept_arguments(self, x: Tensor, rows: Tensor, kwargs: dict[str, Any]) -> dict[str, Tensor]:
        kept = x.index_select(1, rows)  # (batch, kept, channels)
        extra = kwargs.get(self.layer.extra_tokens)  # in front of the queries, so they belong to the keys as well
        masks = token_masks(kwargs, self.layer.masks, x.shape[1])
        cut = {name: mask.index_select(-1, rows) for name, mask in masks.items()}
        return {**cut, self.layer.context: kept if extra is None else torch.cat([extra, kept], 1)}

    def before_projection(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Selects rows where keys and values are projected: there the attention really sees its tokens."""
        rows = self.rows_for(args[0])
        return None if rows is None else (args[0].index_select(1, rows), *args[1:])

    @stays_eager
    def rows_for(self, x: Tensor) -> Tensor | None:
        """The rows of these tokens that are kept in this call; None where all are."""
        return self.rows_in_graph(x) if is_compiling() else self.rows_in_call(x)

    def rows_in_graph(self, x: Tensor) -> Tensor | None:
        table, phase = self.table_in_graph(x.shape[1]), self.context.inputs.phase.to(x.device)
        return kept_rows(table, phase) if isinstance(table, RowTable) and not self.needs_all else None

    @outside_graphs
    def rows_in_call(self, x: Tensor) -> Tensor | None:
        context = self.context
        block, capturing = context.state.block, context.state.capturing
        if block is None or not block.call.active or self.needs_all:
            return None
        grid = block.grid if x.shape[1] == block.tokens else self.tiles_of(x, block)
        table = None if grid is None else context.tables.find(self.key_for(block.call), grid, x.device, capturing)
        return kept_rows(table, context.phase_for(block.call, x.device)) if isinstance(table, RowTable) else None

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
        if self.context.says_now("tiles"):
            grid = format_grid(block.grid)
            warnings.warn(
                f"Attention sees its {grid} tokens in {tiles} tiles, which can be cut in several ways: such layers are "
                "left dense. Turn HyperTile off to reduce them.",
                stacklevel=2,
            )


def token_masks(kwargs: dict[str, Any], names: tuple[str, ...], tokens: int) -> dict[str, Tensor]:
    """The masks among the arguments of an attention that speak of single tokens."""
    masks = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
    return {name: mask for name, mask in masks.items() if mask.shape[-1] == tokens}
