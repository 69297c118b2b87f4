"""The hosts: how to build each, how to call it, and what a look at its code says todome must find there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

import todome

from .inputs import (
    Grid,
    animation_inputs,
    clip_inputs,
    controlnet_inputs,
    gligen_inputs,
    ldm_inputs,
    sdxl_inputs,
    sgm_inputs,
    unet_inputs,
    video_inputs,
)
from .models import (
    controlnet,
    ldm_unet,
    ldm_unet_v2,
    lively,
    motion_unet,
    run,
    sdxl,
    small_unet,
    unet,
    unet_3d,
    video_unet,
    wrapped,
)
from .sgm import SgmUNet


@dataclass(frozen=True)
class Host:
    name: str
    build: Callable[[], Any]  # what todome.apply is given
    inputs: Callable[..., dict[str, Any]]
    grids: tuple[Grid, ...] = ((16, 18), (8, 9))  # of level 1, level 2, ...
    extra: int = 0  # keys that a self-attention sees besides those of the grid

    def __str__(self) -> str:
        return self.name

    @property
    def levels(self) -> int:
        return len(self.grids)

    def run(self, target: Any, **changes: Any) -> Tensor:
        return run(target, **{**self.inputs(), **changes})


def reduced_everywhere(kind: type, host: Host, **changes: Any) -> todome.Downsample | todome.Merge:
    """Half the tokens a side, or half of all of them, at every level."""
    if kind is todome.Downsample:
        return todome.Downsample(factor=(2,) * host.levels, **changes)
    return todome.Merge(ratio=(0.5,) * host.levels, **changes)


ZOO = [
    Host("sd1", unet, unet_inputs, ((16, 18), (8, 9), (4, 5), (2, 3))),
    Host("sd1-odd", unet, lambda batch=3: unet_inputs(batch, (15, 21)), ((15, 21), (8, 11), (4, 6), (2, 3))),
    Host("sd2", lambda: small_unet(use_linear_projection=True, attention_head_dim=(2, 4)), unet_inputs),
    Host("sdxl", sdxl, sdxl_inputs),
    Host("gligen", lambda: small_unet(attention_type="gated"), gligen_inputs),
    Host("animatediff", motion_unet, animation_inputs),
    Host("svd", video_unet, video_inputs),
    Host("unet3d", unet_3d, clip_inputs),
    Host("controlnet", controlnet, controlnet_inputs),
    Host("ldm1", ldm_unet, ldm_inputs),
    Host("ldm1-wrapped", wrapped(ldm_unet), ldm_inputs),
    Host("ldm2", ldm_unet_v2, ldm_inputs),
    Host("sgm", lambda: lively(SgmUNet), sgm_inputs, extra=2),
]


def host_named(name: str) -> Host:
    return next(host for host in ZOO if host.name == name)
