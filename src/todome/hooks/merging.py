"""Merged tokens: matched once in a block, merged before its parts and unmerged after them (ToMe for SD)."""

from typing import Any

from torch import Tensor, nn

from ..levers.merge import Merge
from ..tokens.grid import Grid
from ..tokens.matching import Matching, MatchTable, match, matching_table, merge, unmerge
from .attaching import Arguments, add_hook, add_pre_hook, first, with_first
from .compiling import is_compiling, is_hook
from .keys import token_masks
from .layers import LayerHook
from .registry import attaches


@attaches(Merge)
class MergedTokens(LayerHook):
    """Matches the tokens of a block, then merges what goes into its parts and unmerges what comes out."""

    def __init__(self, layer: Any, *common: Any) -> None:
        super().__init__(layer, *common)
        self.hook_block()
        add_hook(layer.block, self.after_block)
        lever: Any = self.tokens.lever
        wanted = (
            (layer.attention, lever.attention),
            (layer.cross_attention, lever.cross_attention),
            (layer.feed_forward, lever.feed_forward),
        )
        for part in (part for part, want in wanted if want and part is not None):
            add_pre_hook(part, self.before_part)
            add_hook(part, self.after_part)

    @staticmethod
    def build_table(lever: Merge, setting: Any, grid: Grid, seed: int) -> MatchTable:
        return matching_table(grid, lever.stride, lever.random, lever.kept_count(grid, setting), seed)

    @property
    def current(self) -> Any:
        """Where the matching of the block that is being computed is kept."""
        return self.tokens.graph if is_compiling() else self.state

    @is_hook
    def before_block(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().before_block(module, args, kwargs)
        self.note(self.matching_of(first(args, kwargs)))

    def note(self, matching: Matching | None) -> None:
        """Keeps the matching for the parts of the block, which may be in a graph where the block itself is not."""
        self.tokens.graph.matching = matching
        if not is_compiling():
            self.state.matching = matching

    def matching_of(self, x: Tensor) -> Matching | None:
        """Which tokens are alike, x: (batch, tokens, channels); None where they stay as they are."""
        return self.matching_in_graph(x) if is_compiling() else self.matching_in_call(x)

    def matching_in_graph(self, x: Tensor) -> Matching | None:
        table = self.table_in_graph(x.shape[1])
        return match(x, table, self.tokens.graph.phase.to(x.device)) if isinstance(table, MatchTable) else None

    def matching_in_call(self, x: Tensor) -> Matching | None:
        state = self.state
        block = state.block
        if block is None or x.shape[1] != block.tokens:
            return None
        table = self.table_in_call(block.grid, x.device, block.call)
        phase = self.tokens.graph.phase.to(x.device) if state.capturing else block.call.phase_index
        return match(x, table, phase) if isinstance(table, MatchTable) else None

    @is_hook
    def before_part(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        x, current = first(args, kwargs), self.current
        matching = current.matching
        # Not the chunks of a chunked feed-forward, nor an attention whose mask speaks of single tokens.
        whole = matching is not None and x.shape[:2] == matching.place.shape
        current.merging = whole and not token_masks(kwargs, self.layer.masks, x.shape[1])
        return with_first(merge(x, matching), args, kwargs) if matching is not None and current.merging else None

    @is_hook
    def after_part(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        current = self.current
        return unmerge(output, current.matching) if current.merging else None

    @is_hook
    def after_block(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        self.note(None)
