"""Hosts whose blocks call patches around their attention: ComfyUI, Forge and their relatives.

No hook is added to the model, which such hosts share between many settings: a patch is part of the settings. It is
called with the normed tokens before they are projected to queries, keys and values, and with the host's options, of
which `steps.sigmas` lists those that tell the step. The others:

    activations_shape   of the features that became the tokens: the grid. Older hosts do not have it.
    block, block_index  which block it is: ("input", "middle" or "output", number of the stage), number in the stage
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import NothingToReduce, invalid_value
from ..hooks.modules import unwrapped
from ..reductions import Level, Merge, Reduction, layer_table
from ..steps.sigmas import SigmaClock, SigmaWindow
from ..tokens.grid import Grid, RowTable, kept_rows
from ..tokens.matching import Matching, match, merge, unmerge
from ..tokens.tables import Table, TableCache
from . import transformers
from .unet import find_layers, stages_in

Place = tuple[str, int, int]  # the part of the UNet, the number of the stage, the number of the block in it
Tell = Callable[[Level], None]
PARTS = {"input": "input_blocks", "middle": "middle_block", "output": "output_blocks"}


def patched(host: Any, reduction: Reduction, tell: Tell, window: SigmaWindow | None = None) -> Any:
    """A clone of a host's model that is called through the reduction. Where the model is patched already, the new patch
    replaces the old one; a reduction that leaves everything dense only takes it off.

    Args:
        host: What the host passes around as its model: ComfyUI's ModelPatcher, Forge's UnetPatcher.
        reduction: `Downsample()` or `Merge()`.
        tell: Called with each level when it meets a grid for the first time in a run.
        window: `start` and `stop` of the reduction as noise levels, for hosts that do not tell their schedule.
    """
    patch = AttentionPatch(reduction, host.model.diffusion_model, tell, window)
    clone = without_patch(host)
    if patch.layers:
        clone.set_model_attn1_patch(patch.before)  # pyright: ignore[reportAttributeAccessIssue]
        clone.set_model_attn1_output_patch(patch.after)  # pyright: ignore[reportAttributeAccessIssue]
    return clone


def without_patch(host: Any) -> Any:
    """A clone of a host's model without todome's patch. The patches of others stay, in their order."""
    clone = host.clone()
    options = clone.model_options["transformer_options"]
    if "patches" in options:
        kept = {name: [p for p in several if not is_ours(p)] for name, several in options["patches"].items()}
        options["patches"] = {name: several for name, several in kept.items() if several}
    return clone


def is_ours(method: Any) -> bool:
    return isinstance(getattr(method, "__self__", None), AttentionPatch)


class PatchedLayer(NamedTuple):
    """A layer whose level has a setting: its number among all layers, and how often the latent was halved before it."""

    number: int
    level: int
    scale: int
    settings: tuple[Any, ...]  # in each part of a run


class AttentionPatch:
    """Reduces the tokens of every self-attention: `before` and `after` are what the host calls.

    Hosts copy their settings deeply, patches included, so it holds nothing of the model.
    """

    def __init__(
        self, reduction: Reduction, diffusion_model: nn.Module, tell: Tell, window: SigmaWindow | None = None
    ) -> None:
        check_parts(reduction)
        self.reduction, self.tell = reduction, tell
        self.layers = patched_layers(reduction, diffusion_model)
        self.tables = TableCache(functools.partial(layer_table, reduction))
        self.clock = SigmaClock(reduction, window)
        self.said: dict[tuple[int, Grid], int] = {}  # in which run the user was last told of a grid of a level
        self.matching: Matching | None = None

    @torch.compiler.disable
    def before(self, q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v: (batch, tokens, channels). Hosts pass the same tensor three times."""
        self.matching = None
        layer = self.layers.get((*options["block"], options["block_index"])) if options.get("block") else None
        if layer is None or "sigmas" not in options:
            return q, k, v
        self.clock.follow(options)
        grid, batch = grid_of(options, layer.scale), options["original_shape"][0]
        # Others may have made something else of the tokens: text as keys, the frames of a video. HyperTile and ToMe, as
        # these hosts have them, change the queries alone, which fewer keys do not mind.
        tokens = (q, k, v) if isinstance(self.reduction, Merge) else (k, v)
        whole = all(x.shape[:2] == (batch, math.prod(grid)) for x in tokens)
        if not self.clock.active or not whole:
            return q, k, v
        setting = layer.settings[-1] if self.clock.late else layer.settings[0]
        table = self.tables.find((layer.number, setting), grid, q.device)
        self._say_once(layer, grid)
        return (q, k, v) if table is None else self._reduced(q, k, v, table)

    def _reduced(self, q: Tensor, k: Tensor, v: Tensor, table: Table) -> tuple[Tensor, Tensor, Tensor]:
        if isinstance(table, RowTable):
            rows = kept_rows(table, self.clock.phase_index)
            kept = changed_once(lambda x: x.index_select(1, rows), k, v)
            return q, kept[0], kept[1]
        matching = self.matching = match(q, table, self.clock.phase_index)
        merged = changed_once(lambda x: merge(x, matching), q, k, v)
        return merged[0], merged[1], merged[2]

    @torch.compiler.disable
    def after(self, n: Tensor, options: dict[str, Any]) -> Tensor:
        """n: what the attention makes of the tokens, (batch, tokens or merged tokens, channels)."""
        matching, self.matching = self.matching, None
        return n if matching is None else unmerge(n, matching)

    def _say_once(self, layer: PatchedLayer, grid: Grid) -> None:
        if self.said.get((layer.level, grid)) == self.clock.run:
            return
        self.said = {known: run for known, run in self.said.items() if run == self.clock.run}
        self.said[layer.level, grid] = self.clock.run
        settings = [other.settings for other in self.layers.values() if other.level == layer.level]
        kept = sum(self.reduction.kept_count(grid, setting) for setting, *_ in settings) // len(settings)
        self.tell(Level(layer.level, len(settings), self.reduction.summary(settings), {grid: kept}))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"matching": None}


def changed_once(change: Callable[[Tensor], Tensor], *tensors: Tensor) -> list[Tensor]:
    """Changes each tensor, and one that comes twice only once."""
    changed = {id(x): change(x) for x in {id(x): x for x in tensors}.values()}
    return [changed[id(x)] for x in tensors]


def check_parts(reduction: Reduction) -> None:
    if isinstance(reduction, Merge) and (
        reduction.cross_attention or reduction.feed_forward or not reduction.attention
    ):
        parts = (reduction.attention, reduction.cross_attention, reduction.feed_forward)
        allowed = "(True, False, False): this host lets nobody else into the rest of a block"
        raise invalid_value("(attention, cross_attention, feed_forward)", parts, allowed, "Leave all three out")


def patched_layers(reduction: Reduction, diffusion_model: nn.Module) -> dict[Place, PatchedLayer]:
    """The layers whose level has a setting, numbered as todome.apply numbers them."""
    model = unwrapped(diffusion_model)
    names = stage_names(model)
    layers = [layer for layer in find_layers(model) if layer.holder in names]
    if not layers:
        refuse(model)
    found: dict[Place, PatchedLayer] = {}
    for number, (layer, settings) in enumerate(zip(layers, reduction.settings(layers), strict=True)):
        if settings is not None:
            place = (*names[layer.holder], [*map(unwrapped, layer.holder.transformer_blocks)].index(layer.block))
            found[place] = PatchedLayer(number, layer.level, layer.scale, settings)
    return found


def refuse(model: nn.Module) -> None:
    allowed = "SD 1.x, SD 2.x, SDXL and their relatives, whose UNetModel is made of BasicTransformerBlocks"
    why = f": {transformers.REASON.removesuffix('.')}" if transformers.is_transformer(model) else ""
    remedy = f"Leave this model dense{why}"
    raise invalid_value("model", type(model).__name__, allowed, remedy, NothingToReduce)


def stage_names(model: nn.Module) -> dict[nn.Module, tuple[str, int]]:
    """What the host calls the stage that a module is in."""
    return {
        module: (part, number)
        for part, attribute in PARTS.items()
        for number, stage in enumerate(stages_in(model, attribute))
        for module in stage.modules()
    }


def grid_of(options: dict[str, Any], scale: int) -> Grid:
    """The grid of a layer's tokens: read where the host tells it, else halved as the UNet halves it, rounding up."""
    if "activations_shape" in options:
        height, width = options["activations_shape"][-2:]
        return height, width
    height, width = options["original_shape"][-2:]
    return -(-height // 2**scale), -(-width // 2**scale)
