"""Merged tokens: matched once in a block, merged before its parts and unmerged after them (ToMe for SD)."""

from typing import Any

from torch import Tensor, nn

from ..reductions import Merge
from ..tokens.matching import Matching, MatchTable, match, merge, unmerge
from .compiling import is_compiling, outside_graphs, stays_eager
from .grids import LayerHook
from .keys import token_masks
from .modules import Arguments, add_hook, add_pre_hook, first, with_first


class MergedTokens(LayerHook):
    """Matches the tokens of a block, then merges what goes into its parts and unmerges what comes out."""

    def __init__(self, layer: Any, *common: Any) -> None:
        super().__init__(layer, *common)
        add_hook(layer.block, self.after_block)
        merging = self.clock.reduction
        assert isinstance(merging, Merge)
        wanted = (
            (layer.attention, merging.attention),
            (layer.cross_attention, merging.cross_attention),
            (layer.feed_forward, merging.feed_forward),
        )
        for part in (part for part, want in wanted if want and part is not None):
            add_pre_hook(part, self.before_part)
            add_hook(part, self.after_part)

    @property
    @stays_eager
    def current(self) -> Any:
        """Where the matching of the block that is being computed is kept."""
        return self.context.inputs if is_compiling() else self.context.state

    @stays_eager
    def before_block(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().before_block(module, args, kwargs)
        self.note(self.matching_of(first(args, kwargs)))

    @stays_eager
    def note(self, matching: Matching | None) -> None:
        """Keeps the matching for the parts of the block, which may be in a graph where the block itself is not."""
        self.context.inputs.matching = matching
        if not is_compiling():
            self.context.state.matching = matching

    @stays_eager
    def matching_of(self, x: Tensor) -> Matching | None:
        """Which tokens are alike, x: (batch, tokens, channels); None where they stay as they are."""
        if is_compiling():
            table, phase = self.table_in_graph(x.shape[1]), self.context.inputs.phase.to(x.device)
            return match(x, table, phase) if isinstance(table, MatchTable) else None
        return self.matching_of_call(x)

    @outside_graphs
    def matching_of_call(self, x: Tensor) -> Matching | None:
        block = self.context.state.block
        if block is None or not block.call.active or x.shape[1] != block.tokens:
            return None
        table = self.context.tables.find(
            self.key_for(block.call), block.grid, x.device, pin=self.context.state.capturing
        )
        phase = self.context.phase_for(block.call, x.device)
        return match(x, table, phase) if isinstance(table, MatchTable) else None

    @stays_eager
    def before_part(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        x, current = first(args, kwargs), self.current
        matching = current.matching
        # Not the chunks of a chunked feed-forward, nor an attention whose mask speaks of single tokens.
        whole = matching is not None and x.shape[:2] == matching.place.shape
        current.merging = whole and not token_masks(kwargs, self.layer.masks, x.shape[1])
        return with_first(merge(x, matching), args, kwargs) if matching is not None and current.merging else None

    @stays_eager
    def after_part(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        current = self.current
        return unmerge(output, current.matching) if current.merging else None

    @stays_eager
    def after_block(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        self.note(None)
