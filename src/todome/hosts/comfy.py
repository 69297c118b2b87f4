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
from ..hooks import keys, merging  # noqa: F401  # they register themselves
from ..hooks.attaching import unwrapped
from ..hooks.layers import layer_table
from ..hooks.registry import handler_of
from ..levers.lever import Level, Parts, TokenLever, one_of_each
from ..steps.sigmas import SigmaClock
from ..tokens.grid import Grid, RowTable, kept_rows
from ..tokens.matching import Matching, match, merge, unmerge
from ..tokens.tables import Table, TableCache
from . import Layer, find_layers, transformers
from .unet import stages_in

Place = tuple[str, int, int]  # the part of the UNet, the number of the stage, the number of the block in it
Tell = Callable[[Level], None]
PARTS = {"input": "input_blocks", "middle": "middle_block", "output": "output_blocks"}


def patched(host: Any, given: Any, tell: Tell, sigma_at: Callable[[float], float] | None = None) -> Any:
    """A clone of a host's model that is called with fewer tokens. Where the model is patched already, the new patch
    replaces the old one; a lever that leaves everything dense only takes it off.

    Args:
        host: What the host passes around as its model: ComfyUI's ModelPatcher, Forge's UnetPatcher.
        given: `Downsample()`, `Merge()` or a `Plan`.
        tell: Called with each level when it meets a grid for the first time in a run.
        sigma_at: The noise level at a fraction of the steps, for hosts that do not tell their schedule.
    """
    patch = AttentionPatch(given, host.model.diffusion_model, tell, sigma_at)
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
    """A layer that has a setting: its number among all layers, and how often the latent was halved before it."""

    number: int
    level: int
    scale: int


class AttentionPatch:
    """Reduces the tokens of every self-attention: `before` and `after` are what the host calls.

    Hosts copy their settings deeply, patches included, so it holds nothing of the model.
    """

    def __init__(
        self, given: Any, diffusion_model: nn.Module, tell: Tell, sigma_at: Callable[[float], float] | None = None
    ) -> None:
        self.lever, self.tell = token_lever(given), tell
        layers = known_layers(unwrapped(diffusion_model))
        self.parts = self.lever.parts(list(layers.values()))
        self.layers = patched_layers(layers, self.parts)
        self.tables = TableCache(functools.partial(layer_table, self.lever, handler_of(self.lever)))
        cuts = None if sigma_at is None else [sigma_at(cut) for cut in self.parts.cuts]
        self.clock = SigmaClock(self.lever, self.parts, cuts)
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
        setting = None if self.clock.part is None else self.parts.settings[layer.number][self.clock.part]
        # Others may have made something else of the tokens: text as keys, the frames of a video. HyperTile and ToMe, as
        # these hosts have them, change the queries alone, which fewer keys do not mind.
        tokens = (k, v) if self.lever.unit == "keys" else (q, k, v)
        whole = all(x.shape[:2] == (batch, math.prod(grid)) for x in tokens)
        if setting is None or not whole:
            return q, k, v
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
        numbers = [other.number for other in self.layers.values() if other.level == layer.level]
        self.tell(self.lever.level(layer.level, self.parts, numbers, [grid], len(numbers)))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"matching": None}


def changed_once(change: Callable[[Tensor], Tensor], *tensors: Tensor) -> list[Tensor]:
    """Changes each tensor, and one that comes twice only once."""
    changed = {id(x): change(x) for x in {id(x): x for x in tensors}.values()}
    return [changed[id(x)] for x in tensors]


def token_lever(given: Any) -> TokenLever:
    """The lever for tokens, beside which none can be had here."""
    lever: Any
    lever, *others = one_of_each((given,))
    if others or lever.family != TokenLever.family:
        allowed = "todome.Downsample(...), todome.Merge(...) or a plan of one of them alone"
        raise invalid_value("lever", given, allowed, "Use one of them", TypeError)
    lever.check_self_attention_alone()
    return lever


def known_layers(model: nn.Module) -> dict[Place, Layer]:
    """The layers of a model by what the host calls their place, numbered as todome.apply numbers them."""
    names = stage_names(model)
    layers = [layer for layer in find_layers(model) if layer.holder in names]
    if not layers:
        refuse(model)
    return {(*names[layer.holder], number_in_holder(layer)): layer for layer in layers}


def number_in_holder(layer: Layer) -> int:
    return [*map(unwrapped, layer.holder.transformer_blocks)].index(layer.block)


def patched_layers(layers: dict[Place, Layer], parts: Parts) -> dict[Place, PatchedLayer]:
    """The layers that have a setting."""
    return {
        place: PatchedLayer(number, layer.level, layer.scale)
        for number, (place, layer) in enumerate(layers.items())
        if parts.is_reduced(number)
    }


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
