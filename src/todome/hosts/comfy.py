"""Hosts whose blocks call patches around their attention: ComfyUI, Forge and their relatives.

Nothing is hung on the model, which such hosts share between many settings: a patch is part of the settings. It is
called with the normed tokens before they are projected to queries, keys and values, and with the host's options:

    original_shape      of the latents, a list made anew for every call of the model
    activations_shape   of the features that became the tokens: the grid. Older hosts do not have it.
    block, block_index  which block it is: ("input", "middle" or "output", number of the stage), number in the stage
    sigmas              the noise level of this call, on the device
    sample_sigmas       the schedule of this run, one more than there are steps. Older hosts do not have it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import NothingToReduce, invalid_value
from ..hooks.modules import unwrapped
from ..reductions import Level, Merge, Reduction, stateless_randint
from ..tokens.grid import Grid, Order, kept_rows
from ..tokens.matching import Matching, match, merge, unmerge
from ..tokens.tables import Tables
from .unet import find_layers, stages_in

Place = tuple[str, int, int]  # the part of the UNet, the number of the stage, the number of the block in it
PARTS = {"input": "input_blocks", "middle": "middle_block", "output": "output_blocks"}
ROUNDING = 1.0001  # sigmas that went through a sampler's logarithms come back a little different


class Sigmas(NamedTuple):
    """A window given as noise levels: on below the first, off from the second on."""

    start: float
    stop: float


def patched(host: Any, reduction: Reduction, window: Sigmas | None = None, tell: Callable[[str], None] = print) -> Any:
    """A clone of a host's model that is called through the reduction. Where the model is patched already, the new patch
    replaces the old one; a reduction that leaves everything dense only takes it off.

    Args:
        host: What the host passes around as its model: ComfyUI's ModelPatcher, Forge's UnetPatcher.
        reduction: `Downsample()` or `Merge()`.
        window: `start` and `stop` of the reduction as noise levels, for hosts that do not tell their schedule.
        tell: Called with a line about each level, when it meets a grid for the first time in a run.
    """
    patch = AttentionPatch(reduction, host.model.diffusion_model, window, tell)
    clone = without_patch(host)
    if patch.layers:
        clone.set_model_attn1_patch(patch.before)  # pyright: ignore[reportAttributeAccessIssue]
        clone.set_model_attn1_output_patch(patch.after)  # pyright: ignore[reportAttributeAccessIssue]
    return clone


def without_patch(host: Any) -> Any:
    """A clone of a host's model without todome's patch. The patches of others stay, in their order."""
    clone = host.clone()
    options = clone.model_options["transformer_options"]
    kept = {name: [p for p in several if not is_ours(p)] for name, several in options.get("patches", {}).items()}
    if kept:
        options["patches"] = {name: several for name, several in kept.items() if several}
    return clone


def is_ours(method: Any) -> bool:
    return isinstance(getattr(method, "__self__", None), AttentionPatch)


@dataclass
class PatchedLayer:
    level: int
    scale: int  # how often the latent was halved before it
    tables: Tables


class AttentionPatch:
    """Reduces the tokens of every self-attention: `before` and `after` are what the host calls.

    Hosts copy their settings deeply, patches included, so it holds nothing of the model.
    """

    def __init__(
        self,
        reduction: Reduction,
        diffusion_model: nn.Module,
        window: Sigmas | None = None,
        tell: Callable[[str], None] = print,
    ) -> None:
        check_parts(reduction)
        self.reduction, self.tell = reduction, tell
        self.layers = patched_layers(reduction, diffusion_model)
        self.progress = Progress(reduction, window)
        self.told: dict[tuple[int, Grid], int] = {}  # in which run the user was last told of a grid of a level
        self.matching: Matching | None = None

    @torch.compiler.disable
    def before(self, q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v: (batch, tokens, channels). Hosts pass the same tensor three times."""
        self.matching = None
        layer = self.layers.get((*options["block"], options["block_index"])) if options.get("block") else None
        if layer is None or "sigmas" not in options:
            return q, k, v
        self.progress.follow(options)
        grid, batch = grid_of(options, layer.scale), options["original_shape"][0]
        # Others may have made something else of the tokens: text as keys, HyperTile, the frames of a video.
        whole = all(x.shape[:2] == (batch, grid[0] * grid[1]) for x in (q, k, v))
        if not self.progress.active or not whole:
            return q, k, v
        layer.tables.prepare(grid, q.device)
        self._tell_once(layer, grid)
        return self._reduced(q, k, v, layer.tables, grid)

    def _reduced(self, q: Tensor, k: Tensor, v: Tensor, tables: Tables, grid: Grid) -> tuple[Tensor, Tensor, Tensor]:
        table, turn = tables.made[grid], self.progress.turn
        if table is None:
            return q, k, v
        if isinstance(table, Order):
            rows = kept_rows(table, turn)
            kept = changed_once(lambda x: x.index_select(1, rows), k, v)
            return q, kept[0], kept[1]
        matching = self.matching = match(q, table, turn, q.shape[1] - tables.seen[grid])
        merged = changed_once(lambda x: merge(x, matching), q, k, v)
        return merged[0], merged[1], merged[2]

    @torch.compiler.disable
    def after(self, n: Tensor, options: dict[str, Any]) -> Tensor:
        """n: what the attention makes of the tokens, (batch, tokens or merged tokens, channels)."""
        matching, self.matching = self.matching, None
        return n if matching is None else unmerge(n, matching)

    def _tell_once(self, layer: PatchedLayer, grid: Grid) -> None:
        if self.told.get((layer.level, grid)) == self.progress.run:
            return
        self.told[layer.level, grid] = self.progress.run
        layers = sum(other.level == layer.level for other in self.layers.values())
        left = {grid: layer.tables.seen[grid]}
        self.tell("todome: " + self.reduction.describe(Level(layer.level, layers, layer.tables.setting, left)))

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
    """The layers whose level has a setting, with the seeds that todome.apply gives them."""
    model = unwrapped(diffusion_model)
    names = stage_names(model)
    layers = [layer for layer in find_layers(model) if layer.holder in names]
    if not layers:
        allowed = "SD 1.x, SD 2.x, SDXL and their relatives, whose UNetModel is made of BasicTransformerBlocks"
        remedy = "Other models, such as diffusion transformers (DiT), cannot be reduced yet: leave this one dense"
        raise invalid_value("model", type(model).__name__, allowed, remedy, NothingToReduce)
    settings = reduction.levels(max(layer.level for layer in layers))
    found: dict[Place, PatchedLayer] = {}
    for index, layer in enumerate(layers):
        if layer.level in settings:
            place = (*names[layer.holder], number_in(layer.holder, layer.block))
            tables = Tables(reduction, settings[layer.level], stateless_randint(reduction.seed, index))
            found[place] = PatchedLayer(layer.level, layer.scale, tables)
    return found


def number_in(holder: Any, block: nn.Module) -> int:
    return [unwrapped(other) for other in holder.transformer_blocks].index(block)


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


class Progress:
    """Where in a run the host is, read from the noise level it calls its model with: once in every call.

    With a schedule, the step is the place of the noise level in it. Samplers of second order that call the model
    between two of its levels stay in their step; Heun's second call is at the next level, and so in the next step.
    Without one, a run begins where the noise rises and every fall is a step: calls in between count as steps of their
    own, which the window, given as noise levels, does not mind.
    """

    def __init__(self, reduction: Reduction, window: Sigmas | None) -> None:
        self.reduction, self.window = reduction, window
        self.call: list[int] | None = None
        self.schedule: Tensor | None = None
        self.levels: list[float] = []  # the schedule, read
        self.sigma = -1.0  # of the call before
        self.run = self.step = self.turn = 0
        self.active = True

    def follow(self, options: dict[str, Any]) -> None:
        if options["original_shape"] is self.call:
            return
        self.call = options["original_shape"]
        sigma = float(options["sigmas"].max())
        if options.get("sample_sigmas") is None:
            self._count(sigma)
        else:
            self._look_up(sigma, options["sample_sigmas"])
        self.turn = self.reduction.phase_index(self.step)

    def _look_up(self, sigma: float, schedule: Tensor) -> None:
        if schedule is not self.schedule:
            self.schedule, self.levels = schedule, schedule.tolist()
            self.run += 1
        self.step = place_in(self.levels, sigma)
        self.active = self.reduction.is_on(self.step, len(self.levels) - 1)

    def _count(self, sigma: float) -> None:
        if sigma > self.sigma * ROUNDING:
            self.run, self.step = self.run + 1, 0
        elif sigma * ROUNDING < self.sigma:
            self.step += 1
        self.sigma = sigma
        if self.reduction.windowed:
            window = self._known_window()
            self.active = window.stop < sigma <= window.start

    def _known_window(self) -> Sigmas:
        if self.window is None:
            given = (self.reduction.start, self.reduction.stop)
            remedy = "Leave start and stop out, or update the host"
            raise invalid_value(
                "(start, stop)", given, "(0.0, 1.0) in a host that does not tell its schedule", remedy, RuntimeError
            )
        return self.window

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"call": None, "schedule": None}


def place_in(schedule: list[float], sigma: float) -> int:
    """The step that a noise level belongs to: that of the lowest level of the schedule which is not below it."""
    passed = sum(sigma <= level * ROUNDING for level in schedule)
    return min(max(passed, 1), max(len(schedule) - 1, 1)) - 1
