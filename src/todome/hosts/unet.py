"""UNets made of BasicTransformerBlocks: those of diffusers, CompVis, Stability and kohya, and ControlNets.

Found by class *name* along the MRO, so that none of these packages is imported. Nothing of theirs is copied or
replaced: hooks read the grid where the model knows it, and change what goes into the attention layers.
"""

import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from types import CodeType
from typing import Any, NamedTuple

from torch import nn

from ..errors import invalid_value
from ..hooks.attaching import unwrapped
from .layer import Layer

SUPPORTED = (
    "UNet2DConditionModel and its relatives, UNetMotionModel, UNetSpatioTemporalConditionModel, UNet3DConditionModel, "
    "ControlNetModel, and the UNetModel of ldm and sgm"
)
HOLDERS = {
    "Transformer2DModel",  # diffusers' UNets and ControlNets, kohya's sd-scripts
    "TransformerSpatioTemporalModel",  # Stable Video Diffusion
    "SpatialTransformer",  # CompVis, Stability: ldm, sgm
}
PLAIN = {"AttnProcessor", "AttnProcessor2_0", "XFormersAttnProcessor", "SlicedAttnProcessor"}  # attention, no more
MAP_MAKERS = {"get_attention_scores", "softmax"}  # what a processor calls that has the map of attention in its hands
WAYS = ("down", "mid", "up")
STAGES = (("down_blocks", "mid_block", "up_blocks"), ("input_blocks", "middle_block", "output_blocks"))
CHECKPOINT_FLAGS = ("checkpoint", "gradient_checkpointing")  # of blocks that checkpoint their inside: ldm, sgm; kohya


def is_named(module: Any, names: set[str]) -> bool:
    return any(cls.__name__ in names for cls in type(module).__mro__)


class Place(NamedTuple):
    """Where a holder is: in which network, on which way through it, after how many halvings of the latent."""

    net: nn.Module
    way: str
    scale: int


def find_layers(root: nn.Module) -> list[Layer]:
    """Every block of a model whose tokens are those of an image."""
    found = [(holder, place, block) for holder, place in holders_in(root) for block in image_blocks(holder)]
    return [layer_of(block, holder, place, root) for holder, place, block in found]


def holders_in(root: nn.Module) -> Iterator[tuple[nn.Module, Place]]:
    places = dict(holder_places(root))
    for module in root.modules():
        if is_holder(module) and module is not root:
            yield module, places.get(module, Place(root, "down", 0))


def is_holder(module: nn.Module) -> bool:
    return is_named(module, HOLDERS) and hasattr(module, "transformer_blocks")


def layer_of(block: Any, holder: nn.Module, place: Place, root: nn.Module) -> Layer:
    return Layer(
        root=root,
        block=block,
        holder=holder,
        attention=block.attn1,
        scale=place.scale,
        way=place.way,
        net=place.net,
        context=context_name(block.attn1),
        masks=("attention_mask", "mask"),  # diffusers; ldm
        extra_tokens="additional_tokens",  # sgm
        needs_all_keys=needs_all_keys,
        takes_kept_rows=takes_kept_rows,
        check=refuse_fused,
        cross_attention=getattr(block, "attn2", None),
        feed_forward=getattr(block, "ff", None),
        recomputed=block.norm1 if any(hasattr(block, flag) for flag in CHECKPOINT_FLAGS) else None,
    )


def image_blocks(holder: Any) -> Iterator[nn.Module]:
    """The blocks of a holder that attend over its grid, where they attend to themselves at all."""
    for block in map(unwrapped, holder.transformer_blocks):
        only_text = getattr(block, "only_cross_attention", False) or getattr(block, "disable_self_attn", False)
        if is_named(block, {"BasicTransformerBlock"}) and not only_text:
            yield block


def holder_places(root: nn.Module) -> Iterator[tuple[nn.Module, Place]]:
    """The place of each holder, from the order of the stages."""
    for model in root.modules():
        scale = 0
        for way, stage in stages(model):
            yield from ((m, Place(model, way, scale)) for m in stage.modules() if is_named(m, HOLDERS))
            kinds = {type(m).__name__ for m in stage.modules()}
            scale += any("Downsample" in kind for kind in kinds) - any("Upsample" in kind for kind in kinds)


def stages(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for names in STAGES:
        for way, name in zip(WAYS, names, strict=True):
            yield from ((way, stage) for stage in stages_in(model, name))


def stages_in(model: nn.Module, name: str) -> Iterable[nn.Module]:
    part = getattr(model, name, None)
    return part if isinstance(part, nn.ModuleList) else filter(None, [part])


def context_name(attention: nn.Module) -> str:
    parameters = inspect.signature(attention.forward).parameters
    return "encoder_hidden_states" if "encoder_hidden_states" in parameters else "context"


def needs_all_keys(attention: nn.Module) -> bool:
    """Whether its processor does more with keys or values than attention does."""
    return looks_closer(type(getattr(attention, "processor", None)))


@cache
def looks_closer(processor: type) -> bool:
    """Whether processors of a class read the map of attention, or perturb it (PAG: values as the output)."""
    own = [cls for cls in processor.__mro__ if cls.__name__ not in PLAIN]
    names = {name for cls in own for code in codes_of(cls) for name in code.co_names}
    return "PAG" in processor.__name__ or not names.isdisjoint(MAP_MAKERS)


def codes_of(cls: type) -> Iterator[CodeType]:
    return (part.__code__ for part in vars(cls).values() if inspect.isfunction(part))


def takes_kept_rows(attention: nn.Module) -> bool:
    """Whether kept rows may be handed to it as its context: it makes keys and values of them and nothing else."""
    processor = getattr(attention, "processor", None)
    return "forward" not in vars(attention) and (processor is None or type(processor).__name__ in PLAIN)


def refuse_fused(attention: nn.Module) -> None:
    """Refuses projections of which keys and values cannot be had without queries."""
    processor = type(getattr(attention, "processor", None)).__name__
    if processor.startswith("Fused"):
        remedy = "Call unfuse_qkv_projections() first, or use todome.Merge"
        allowed = "attention with a projection of its own for keys"
        raise invalid_value("processor", processor, allowed, remedy, RuntimeError)
