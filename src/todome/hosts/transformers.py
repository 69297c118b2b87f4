"""Pure transformers (DiT, PixArt, SD3, FLUX and their like): refused, because fewer keys break their pictures.

In a UNet convolutions and skips carry what is near, attention only what is far. In a transformer attention is all there
is between tokens, near ones included. The page docs/transformers.md has the measurements.
"""

from torch import nn

REASON = (
    "this is a transformer without convolutions, and fewer keys break its pictures: 9 dB to dense with ToDo and 21 dB "
    "dithered, where a UNet keeps 39 (the page Transformers of the documentation has the figures)."
)


def is_transformer(model: nn.Module) -> bool:
    """Whether a model says by its class name that it is one, as those of diffusers and ComfyUI do."""
    names = [cls.__name__ for cls in type(model).__mro__]
    return any("Transformer" in name or "DiT" in name or name == "Flux" for name in names)
