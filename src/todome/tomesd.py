"""The names and arguments of tomesd 0.1.3: code written for it runs with `import todome as tomesd`."""

import warnings
from typing import Any, TypeVar

from .levers.merge import Merge
from .patch import apply, denoisers, is_pipeline, remove

Model = TypeVar("Model")


class CappedMerge(Merge):
    """Merge that takes any ratio and merges as many tokens as there are: tomesd's cap."""

    def most(self) -> float:
        return 1.0


def apply_patch(
    model: Model,
    ratio: float = 0.5,
    max_downsample: int = 1,
    sx: int = 2,
    sy: int = 2,
    use_rand: bool = True,
    merge_attn: bool = True,
    merge_crossattn: bool = False,
    merge_mlp: bool = False,
) -> Model:
    """tomesd.apply_patch: merges tokens at every level whose latent was downsampled by at most `max_downsample`.

    Where the model has no self-attention that shallow (SDXL), its first level is merged and a warning says so; tomesd
    does nothing there. A ratio above what sx and sy allow is capped as in tomesd, with a warning.
    """
    most = 1 - 1 / (sx * sy)
    if ratio > most:
        warnings.warn(f"ratio={ratio} is capped at {most:g}, the most that sx={sx}, sy={sy} allow.", stacklevel=2)
    unet = getattr(model, "unet", model)
    lever = CappedMerge(
        ratio=[min(ratio, 1.0)] * shallow_levels(unet, max_downsample),
        stride=(sy, sx),
        random=use_rand,
        attention=merge_attn,
        cross_attention=merge_crossattn,
        feed_forward=merge_mlp,
    )
    patch = apply(unet, lever)
    if is_pipeline(model):
        patch.shared.runs.follow_pipeline(model)  # apply(model) would reduce a ControlNet too, which tomesd does not
    return model


def remove_patch(model: Model) -> Model:
    """tomesd.remove_patch: takes the patch off."""
    remove(model)
    return model


def shallow_levels(model: Any, max_downsample: int) -> int:
    """How many levels lie within max_downsample; at least the first."""
    from .hosts import find_layers

    layers = find_layers(*denoisers(model))
    within = [layer.level for layer in layers if 2**layer.scale <= max_downsample]
    if layers and not within:
        warnings.warn(
            f"max_downsample={max_downsample} reaches no self-attention of this model, whose first is at "
            f"{2 ** min(layer.scale for layer in layers)}: its first level is merged.",
            stacklevel=3,
        )
    return max(within, default=1)
