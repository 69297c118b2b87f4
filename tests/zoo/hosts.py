"""The hosts: how to build each, how to call it, and what a look at its code says todome must find there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

import todome

from . import inputs, models
from .inputs import Grid
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
        return models.run(target, **{**self.inputs(), **changes})


def reduced_everywhere(kind: type, host: Host, **changes: Any) -> todome.Downsample | todome.Merge:
    """Half the tokens a side, or half of all of them, at every level."""
    if kind is todome.Downsample:
        return todome.Downsample(factor=(2,) * host.levels, **changes)
    return todome.Merge(ratio=(0.5,) * host.levels, **changes)


ODD = ((15, 21), (8, 11), (4, 6), (2, 3))
ZOO = [
    Host("sd1", models.unet, inputs.unet_inputs, ((16, 18), (8, 9), (4, 5), (2, 3))),
    Host("sd1-odd", models.unet, lambda batch=3: inputs.unet_inputs(batch, ODD[0]), ODD),
    Host("sd2", lambda: models.small_unet(use_linear_projection=True, attention_head_dim=(2, 4)), inputs.unet_inputs),
    Host("sdxl", models.sdxl, inputs.sdxl_inputs),
    Host("gligen", lambda: models.small_unet(attention_type="gated"), inputs.gligen_inputs),
    Host("animatediff", models.motion_unet, inputs.animation_inputs),
    Host("svd", models.video_unet, inputs.video_inputs),
    Host("unet3d", models.unet_3d, inputs.clip_inputs),
    Host("controlnet", models.controlnet, inputs.controlnet_inputs),
    Host("ldm1", models.ldm_unet, inputs.ldm_inputs),
    Host("ldm1-wrapped", models.wrapped(models.ldm_unet), inputs.ldm_inputs),
    Host("ldm2", models.ldm_unet_v2, inputs.ldm_inputs),
    Host("sgm", lambda: models.lively(SgmUNet), inputs.sgm_inputs, extra=2),
]


def host_named(name: str) -> Host:
    return next(host for host in ZOO if host.name == name)
