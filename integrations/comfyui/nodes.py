"""The nodes: what the user sets becomes a lever, and the lever a patch on a clone of the model."""

import math
import sys
from pathlib import Path
from typing import Any

from todome import Downsample, Merge, Plan
from todome.hosts.comfy import patched, token_lever
from todome.levers.lever import Level, TokenLever
from todome.levers.plan import LeverOrPlan

Input = tuple[Any, dict[str, Any]]


def number(default: float, least: float, most: float, step: float, tooltip: str) -> Input:
    return "FLOAT", {"default": default, "min": least, "max": most, "step": step, "tooltip": tooltip}


def choice(among: list[str], tooltip: str) -> Input:
    return among, {"default": among[0], "tooltip": tooltip}


MODEL: Input = ("MODEL", {"tooltip": "SD 1.x, SD 2.x or SDXL. This node replaces a todome node that comes before it."})
HIDDEN = {"node_id": "UNIQUE_ID"}  # what ComfyUI fills in by itself
START = number(0, 0, 1, 0.01, "The share of the steps before which the model stays dense.")
STOP = number(
    1, 0, 1, 0.01, "The share of the steps after which the model is dense again. 0.8 draws the last details dense."
)


class ModelNode:
    """What ComfyUI asks of every node: here, MODEL in, MODEL out, by `patch`."""

    CATEGORY = "model_patches/unet"
    RETURN_TYPES = ("MODEL",)
    FUNCTION = "patch"


class TokenDownsampling(ModelNode):
    """Settings for `todome.Downsample`."""

    DESCRIPTION = (
        "Makes SD 1.x, SD 2.x and SDXL faster at high resolutions: attention looks at 1 key in factor x factor, "
        "another one at every step. Off, which is factor 1, gives exactly the picture without the node."
    )
    OUTPUT_TOOLTIPS = ("The model with fewer keys. The one that came in stays as it was.",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, dict[str, Any]]:  # noqa: N802
        factor = (
            "auto: what leaves at most 4096 keys at each level. On SD 1.x that is 1 (dense) at 512 px, 2 at 1024, "
            "3 at 1536, 4 at 2048. per level: the two factors below."
        )
        first = (
            "At the finest level that has self-attention, where most of the time goes. 2 keeps 1 key in 4, 1 is off."
        )
        second = "At the next level, at half the resolution. Faster still at 2048 px, less like the dense picture."
        phase = (
            "Which key of each cell is kept. dither: another one at every step, closest to the dense picture. "
            "fixed: always the corner, as ToDo does. random: drawn at every step."
        )
        required = {
            "model": MODEL,
            "factor": choice(["auto", "per level"], factor),
            "factor_level_1": number(2, 1, 8, 0.25, first),
            "factor_level_2": number(1, 1, 8, 0.25, second),
            "phase": choice(["dither", "fixed", "random"], phase),
            "start_percent": START,
            "stop_percent": STOP,
        }
        plan = (
            "The file that todome tune wrote for this model: a factor for each layer, instead of factor and phase. "
            "Empty: no plan."
        )
        optional = {"plan_file": ("STRING", {"default": "", "tooltip": plan})}  # workflows of before go without
        return {"required": required, "optional": optional, "hidden": HIDDEN}

    @classmethod
    def IS_CHANGED(cls, plan_file: str = "", **others: Any) -> str:  # noqa: N802
        """Another text where the file has changed: ComfyUI runs a node again when this differs."""
        path = Path(plan_file.strip())
        return path.read_text(encoding="utf-8", errors="replace") if plan_file.strip() and path.is_file() else ""

    def patch(
        self,
        model: Any,
        factor: str,
        factor_level_1: float,
        factor_level_2: float,
        phase: Any,
        start_percent: float,
        stop_percent: float,
        plan_file: str = "",
        node_id: str | None = None,
    ) -> tuple[Any]:
        if plan_file.strip():
            return reduced(model, Plan.load(plan_file.strip()).within(start_percent, stop_percent), node_id)
        factors = "auto" if factor == "auto" else by_level(factor_level_1, factor_level_2, off=1)
        return reduced(model, Downsample(factors, phase, start_percent, stop_percent), node_id)


class TokenMerging(ModelNode):
    """Settings for `todome.Merge`."""

    DESCRIPTION = (
        "Averages alike tokens before self-attention and copies them apart after it, as ToMe does. Token Downsampling "
        "is faster and closer to the dense picture: this node is here to compare."
    )
    OUTPUT_TOOLTIPS = ("The model with merged tokens. The one that came in stays as it was.",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, dict[str, Any]]:  # noqa: N802
        first = (
            "The share of tokens that are merged into others, at the finest level that has self-attention. 0 is off."
        )
        stride = "One token in stride x stride is merged into, so the ratio is at most 1 - 1 / stride^2: 0.75 for 2."
        required = {
            "model": MODEL,
            "ratio_level_1": number(0.5, 0, 0.98, 0.01, first),
            "ratio_level_2": number(0, 0, 0.98, 0.01, "The same at the next level, at half the resolution."),
            "stride": ("INT", {"default": 2, "min": 2, "max": 8, "tooltip": stride}),
            "random": ("BOOLEAN", {"default": True, "tooltip": "Draws the tokens that are merged into at every step."}),
            "start_percent": START,
            "stop_percent": STOP,
        }
        return {"required": required, "hidden": HIDDEN}

    def patch(
        self,
        model: Any,
        ratio_level_1: float,
        ratio_level_2: float,
        stride: int,
        random: bool,
        start_percent: float,
        stop_percent: float,
        node_id: str | None = None,
    ) -> tuple[Any]:
        ratios = by_level(ratio_level_1, ratio_level_2, off=0)
        merge = Merge(ratios, (stride, stride), random, start=start_percent, stop=stop_percent)
        return reduced(model, merge, node_id)


def by_level(first: float, second: float, off: float) -> tuple[float, ...]:
    """A second level that is off is left out: a model need not have one."""
    return (first,) if second == off else (first, second)


class NodeText:
    """Says what is done at each level: on the console, and on the node where this ComfyUI can show text there."""

    def __init__(self, lever: TokenLever, node_id: str | None) -> None:
        self.lever, self.node_id = lever, node_id
        self.lines: dict[int, str] = {}

    def __call__(self, level: Level) -> None:
        whole = all(left == math.prod(grid) for grid, left in level.grids.items())
        dense = whole and level.setting == "auto"
        more = ': nothing is reduced at this size. Set factor to "per level" to reduce all the same' if dense else ""
        line = self.lines[level.level] = self.lever.describe(level) + more
        print(f"todome: {line}", flush=True)
        server = getattr(sys.modules.get("server"), "PromptServer", None)
        show = getattr(getattr(server, "instance", None), "send_progress_text", None)
        if show is not None and self.node_id is not None:
            show("\n".join(self.lines.values()), self.node_id)


def reduced(model: Any, given: LeverOrPlan, node_id: str | None) -> tuple[Any]:
    """A clone of the model. The noise levels are for ComfyUI before 2025, which does not tell its schedule."""
    sampling = model.object_patches.get("model_sampling", model.model.model_sampling)
    lever = token_lever(given)
    return (patched(model, lever, NodeText(lever, node_id), lambda done: float(sampling.percent_to_sigma(done))),)


NODE_CLASS_MAPPINGS: dict[str, type] = {
    "TodomeTokenDownsampling": TokenDownsampling,
    "TodomeTokenMerging": TokenMerging,
}
NODE_DISPLAY_NAME_MAPPINGS: dict[str, str] = {
    "TodomeTokenDownsampling": "Token Downsampling (todome)",
    "TodomeTokenMerging": "Token Merging (todome)",
}
