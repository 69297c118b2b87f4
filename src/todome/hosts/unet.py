"""Models made of BasicTransformerBlocks: the UNets of diffusers, CompVis, Stability and kohya, ControlNet, PixArt, DiT.

Found by class *name* along the MRO, so that none of these packages is imported. Nothing of theirs is copied or
replaced: a hook reads the grid where the model knows it, others change what goes into the attention layers.
"""

import inspect
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import invalid_value
from ..hooks.checkpointing import chosen_once, is_recomputing
from ..hooks.modules import Arguments, Hook, first, hang_after, hang_before, unwrapped, with_first
from ..reductions import Downsample, Merge, Reduction, stateless_randint
from ..steps.clock import Clock
from ..tokens.grid import Grid, kept_rows
from ..tokens.matching import Matching, match, merge, unmerge
from ..tokens.tables import Tables

HOLDERS = {
    "Transformer2DModel",  # diffusers' UNets and ControlNets, kohya's sd-scripts
    "TransformerSpatioTemporalModel",  # Stable Video Diffusion
    "SpatialTransformer",  # CompVis, Stability: ldm, sgm
    "PixArtTransformer2DModel",
    "DiTTransformer2DModel",
}
CHECKPOINTED_INSIDE = ("checkpoint", "gradient_checkpointing")  # the switch for it in blocks of ldm and sgm; of kohya
STAGES = (("down_blocks", "mid_block", "up_blocks"), ("input_blocks", "middle_block", "output_blocks"))


def is_named(module: Any, names: set[str]) -> bool:
    return any(cls.__name__ in names for cls in type(module).__mro__)


@dataclass(frozen=True)
class Layer:
    """One block with self-attention, and the module around it that sees the grid."""

    block: Any
    holder: nn.Module
    scale: int  # how often the latent was halved before it
    level: int  # 1 = the finest scale at which the model has self-attention


def find_layers(root: nn.Module) -> list[Layer]:
    """Every block whose tokens are those of an image."""
    scales = dict(holder_scales(root))
    holders = [m for m in root.modules() if is_named(m, HOLDERS) and hasattr(m, "transformer_blocks")]
    found = [(block, holder, scales.get(holder, 0)) for holder in holders for block in image_blocks(holder)]
    levels = {scale: level for level, scale in enumerate(sorted({scale for *_, scale in found}), start=1)}
    return [Layer(block, holder, scale, levels[scale]) for block, holder, scale in found]


def image_blocks(holder: Any) -> Iterator[nn.Module]:
    """The blocks of a holder that attend over its grid, where they attend to themselves at all."""
    for block in map(unwrapped, holder.transformer_blocks):
        only_text = getattr(block, "only_cross_attention", False) or getattr(block, "disable_self_attn", False)
        if is_named(block, {"BasicTransformerBlock"}) and not only_text:
            yield block


def holder_scales(root: nn.Module) -> Iterator[tuple[nn.Module, int]]:
    """How often the latent was halved when it reaches each holder, read off the order of the stages."""
    for model in root.modules():
        scale = 0
        for stage in stages(model):
            yield from ((m, scale) for m in stage.modules() if is_named(m, HOLDERS))
            kinds = {type(m).__name__ for m in stage.modules()}
            scale += any("Downsample" in kind for kind in kinds) - any("Upsample" in kind for kind in kinds)


def stages(model: nn.Module) -> Iterator[nn.Module]:
    for names in STAGES:
        for name in names:
            yield from stages_in(model, name)


def stages_in(model: nn.Module, name: str) -> Iterable[nn.Module]:
    part = getattr(model, name, None)
    return part if isinstance(part, nn.ModuleList) else filter(None, [part])


class GridReader(Hook):
    """Notes the grid of the tokens that the blocks inside a holder are about to see, and has their reducers prepare."""

    def __init__(self, holder: nn.Module, clock: Clock) -> None:
        super().__init__(clock)
        self.grid: Grid | None = None
        self.reducers: list[Reducer] = []
        self.patch: int = getattr(getattr(holder, "config", None), "patch_size", None) or 1  # DiT, PixArt
        hang_before(holder, self.before)

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = first(args, kwargs)  # (batch, channels, height, width)
        # operator.index: under torch.compile a size may be a symbol, and one graph per grid is wanted
        grid = operator.index(x.shape[-2] // self.patch), operator.index(x.shape[-1] // self.patch)
        if not torch.compiler.is_compiling():
            # kohya and older diffusers compute whole holders again
            self.clock.show(chosen_once(x, self, module, lambda: self.clock.call))
        self.grid = grid if self.clock.active and self.prepare(grid, x.device) and self.is_prepared(grid) else None

    @torch.compiler.assume_constant_result
    def prepare(self, grid: Grid, device: torch.device) -> bool:
        """torch.compile runs this while it traces and never again: no graph contains the making of a table."""
        for reducer in self.reducers:
            reducer.tables.prepare(grid, device)
        return True

    def is_prepared(self, grid: Grid) -> bool:
        """Asked after `prepare`, so that torch.compile never runs a graph of one holder for another one's tables."""
        return all(grid in reducer.tables.made for reducer in self.reducers)


class Moment(NamedTuple):
    """Where and when a block is called, and which of its tokens were found to be alike."""

    grid: Grid | None
    turn: Tensor | int
    matching: Matching | None = None


class Reducer(Hook):
    """Reduces the tokens of one block."""

    def __init__(self, block: Any, reader: GridReader, tables: Tables, clock: Clock) -> None:
        super().__init__(clock)
        self.reader, self.tables = reader, tables
        self.moment: Moment | None = None  # of the block that is being computed
        reader.reducers.append(self)
        hang_before(block, self.before_block)
        if any(hasattr(block, switch) for switch in CHECKPOINTED_INSIDE):
            hang_before(block.norm1, self.before_norm)

    def before_block(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.compiler.is_compiling():
            return
        x = first(args, kwargs)  # (batch, tokens, channels)
        self.moment = chosen_once(x, self, module, lambda: self.now(x))

    def before_norm(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Where the inside of a block is computed again, its first layer is called with what the block was."""
        if not torch.compiler.is_compiling() and is_recomputing():
            self.before_block(module, args, kwargs)

    def now(self, x: Tensor) -> Moment:
        return Moment(self.reader.grid, self.clock.turn_on(x.device))

    def table_for(self, x: Tensor, grid: Grid | None) -> Any:
        """The table for these tokens; None where they stay as they are, or where others (HyperTile) regrouped them."""
        return self.tables.made.get(grid) if grid is not None and x.shape[1] == grid[0] * grid[1] else None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"moment": None}


class KeptKeys(Reducer):
    """Hands a self-attention the kept rows of its own input as context: selecting commutes with projecting to keys."""

    def __init__(self, layer: Layer, *common: Any) -> None:
        super().__init__(layer.block, *common)
        self.context = context_name(layer.block.attn1)
        hang_before(layer.block.attn1, self.before_attention)

    def before_attention(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        x = first(args, kwargs)  # (batch, tokens, channels)
        # No attribute is written in a graph: torch.compile refuses that inside of a checkpoint.
        moment = None if torch.compiler.is_compiling() else self.moment
        grid, turn, _ = moment or self.now(x)
        order = self.table_for(x, grid)
        if order is None or not attends_to_itself(module, args, kwargs, self.context):
            return None
        refuse_fused(module)
        rows = kept_rows(order, turn)
        return args, {**kwargs, **kept_masks(kwargs, rows, x.shape[1]), self.context: kept_context(x, rows, kwargs)}


def context_name(attention: nn.Module) -> str:
    parameters = inspect.signature(attention.forward).parameters
    return "encoder_hidden_states" if "encoder_hidden_states" in parameters else "context"


def attends_to_itself(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], context: str) -> bool:
    """False where the block passes text to its first attention, or where PAG's processor looks at its input only."""
    given = kwargs.get(context) is not None or (len(args) > 1 and args[1] is not None)
    return not given and "PAG" not in type(getattr(module, "processor", None)).__name__


def kept_context(x: Tensor, rows: Tensor, kwargs: dict[str, Any]) -> Tensor:
    kept = x.index_select(1, rows)  # (batch, kept, channels)
    extra = kwargs.get("additional_tokens")  # sgm prepends them to the queries, so they belong to the keys as well
    return kept if extra is None else torch.cat([extra, kept], 1)


def token_masks(kwargs: dict[str, Any], tokens: int) -> dict[str, Tensor]:
    """The masks among the arguments of an attention that speak of single tokens."""
    masks = {name: kwargs[name] for name in ("attention_mask", "mask") if kwargs.get(name) is not None}
    return {name: mask for name, mask in masks.items() if mask.shape[-1] == tokens}


def kept_masks(kwargs: dict[str, Any], rows: Tensor, tokens: int) -> dict[str, Tensor]:
    return {name: mask.index_select(-1, rows) for name, mask in token_masks(kwargs, tokens).items()}


def check_layers(layers: list[Layer], settings: Mapping[int, Any], reduction: Reduction) -> None:
    """Refuses what could not work, before anything is hung."""
    if isinstance(reduction, Downsample):
        for layer in layers:
            if layer.level in settings:
                refuse_fused(layer.block.attn1)


def refuse_fused(attention: nn.Module) -> None:
    processor = type(getattr(attention, "processor", None)).__name__
    if processor.startswith("Fused"):
        remedy = "Call unfuse_qkv_projections() first, or use todome.Merge"
        raise invalid_value(
            "processor", processor, "attention with a projection of its own for keys", remedy, RuntimeError
        )


class MergedTokens(Reducer):
    """Matches the tokens of a block once, then merges what goes into its parts and unmerges what comes out."""

    def __init__(self, layer: Layer, reduction: Merge, *common: Any) -> None:
        super().__init__(layer.block, *common)
        self.merging = False  # whether the part that is being called was given merged tokens
        hang_after(layer.block, self.after_block)
        wanted = {"attn1": reduction.attention, "attn2": reduction.cross_attention, "ff": reduction.feed_forward}
        for part in (getattr(layer.block, name, None) for name, want in wanted.items() if want):
            if part is not None:
                hang_before(part, self.before_part)
                hang_after(part, self.after_part)

    def before_block(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().before_block(module, args, kwargs)
        if torch.compiler.is_compiling():
            self.moment = self.now(first(args, kwargs))

    def now(self, x: Tensor) -> Moment:
        grid, turn, _ = super().now(x)
        cells = self.table_for(x, grid)
        if grid is None or cells is None:
            return Moment(grid, turn)
        return Moment(grid, turn, match(x, cells, turn, x.shape[1] - self.tables.seen[grid]))

    @property
    def matching(self) -> Matching | None:
        return None if self.moment is None else self.moment.matching

    def before_part(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        x, matching = first(args, kwargs), self.matching
        # Not the chunks of a chunked feed-forward, nor an attention whose mask speaks of single tokens.
        whole = matching is not None and x.shape[:2] == matching.place.shape
        self.merging = whole and not token_masks(kwargs, x.shape[1])
        return with_first(merge(x, matching), args, kwargs) if matching is not None and self.merging else None

    def after_part(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        return unmerge(output, self.matching) if self.matching is not None and self.merging else None

    def after_block(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        self.moment = None


def reduce_layers(layers: list[Layer], settings: Mapping[int, Any], clock: Clock) -> dict[Layer, Reducer]:
    """Hangs on every layer whose level has a setting what the clock's reduction asks for."""
    reduction = clock.reduction
    readers: dict[nn.Module, GridReader] = {}
    reducers: dict[Layer, Reducer] = {}
    for index, layer in enumerate(layers):
        if layer.level not in settings:
            continue
        if layer.holder not in readers:
            readers[layer.holder] = GridReader(layer.holder, clock)
        tables = Tables(reduction, settings[layer.level], stateless_randint(reduction.seed, index))
        common = readers[layer.holder], tables, clock
        if isinstance(reduction, Downsample):
            reducers[layer] = KeptKeys(layer, *common)
        elif isinstance(reduction, Merge):
            reducers[layer] = MergedTokens(layer, reduction, *common)
    return reducers
