"""The stages of a UNet, which a partial step may leave out, and what stands in for each module that is left out."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from torch import Tensor, nn

from .unet import PLAIN, is_named, looks_closer

Arguments: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class StagePart:
    """A module of one stage on the way through a UNet.

    Attributes:
        module: The module.
        stage: 1 is the finest; that of the middle is one more than the deepest.
        joint: The number of stages above, where its output is all that goes up into them; else None.
        stand_in: What it gives where it is left out, from what it is called with: nothing that anybody looks at.
    """

    module: nn.Module
    stage: int
    joint: int | None
    stand_in: Callable[[Tensor], Any]


def never(arguments: Arguments) -> bool:
    return False


@dataclass(frozen=True, eq=False)
class Denoiser:
    """A model that is called once a step with latents and a timestep, and gives one tensor of their size.

    Attributes:
        model: The model.
        parts: Those that can be left out, where it is a UNet.
        finest: What its finest stage is made of: "attention", "convolutions"; "" where it has no stages.
        is_adapted: Whether it is called with what is added to deep features in place, so that they must be computed.
    """

    model: nn.Module
    parts: tuple[StagePart, ...]
    finest: str
    is_adapted: Callable[[Arguments], bool] = never

    @property
    def channels(self) -> tuple[int, int] | None:
        """How many channels it takes and gives, as far as it tells."""
        config: Any = getattr(self.model, "config", None)
        taken, given = (getattr(config, name, None) for name in ("in_channels", "out_channels"))
        return (taken, given) if isinstance(taken, int) and isinstance(given, int) else None

    @property
    def sign(self) -> int:
        """-1 where a model of flows gives the way to the picture, which its pipeline turns round."""
        return -1 if is_named(self.model, TO_THE_PICTURE) else 1


def find_denoiser(model: nn.Module) -> Denoiser | None:
    """The description of a model that reuse over steps knows."""
    for describe in (unet_of_diffusers, unet_of_ldm, called_with_timestep):
        found = describe(model)
        if found is not None:
            return found
    return None


def unet_of_diffusers(model: nn.Module) -> Denoiser | None:
    down, middle, up = (getattr(model, name, None) for name in ("down_blocks", "mid_block", "up_blocks"))
    if not isinstance(down, nn.ModuleList) or not isinstance(up, nn.ModuleList) or not hasattr(model, "conv_out"):
        return None
    if len(down) != len(up) or middle is None or not all(map(has_stages, down)):
        return Denoiser(model, (), "convolutions")
    parts = [StagePart(block, stage, None, NoFeatures(residuals(block))) for stage, block in enumerate(down, 1)]
    parts.append(StagePart(middle, len(down) + 1, len(down), NoFeatures()))
    stages = range(len(up), 0, -1)
    parts += [StagePart(block, stage, stage - 1, NoFeatures()) for stage, block in zip(stages, up, strict=True)]
    return Denoiser(model, tuple(parts), kind_of(down[0]), is_adapted)


def has_stages(block: nn.Module) -> bool:
    """Whether a block hands features to the way up and nothing else, as those of NCSN++ do."""
    return hasattr(block, "resnets") and not hasattr(block, "skip_conv")


def is_adapted(arguments: Arguments) -> bool:
    """Whether a UNet of diffusers is called with the features of a T2I-Adapter, by their new name or their old one."""
    down, middle = map(arguments.get, ("down_block_additional_residuals", "mid_block_additional_residual"))
    return arguments.get("down_intrablock_additional_residuals") is not None or (down is not None and middle is None)


def residuals(block: Any) -> int:
    """How many features a block on the way down hands to the way up."""
    return len(block.resnets) + bool(getattr(block, "downsamplers", None))


def unet_of_ldm(model: nn.Module) -> Denoiser | None:
    down, middle, up = (getattr(model, name, None) for name in ("input_blocks", "middle_block", "output_blocks"))
    if not isinstance(down, nn.ModuleList) or not isinstance(up, nn.ModuleList) or middle is None:
        return None
    if len(down) != len(up):
        return Denoiser(model, (), "convolutions")
    stages, stage = [], 1
    for block in down:
        stage += any("Downsample" in type(part).__name__ for part in block.modules())
        stages.append(stage)
    parts = [StagePart(block, own, None, no_channels) for block, own in zip(down, stages, strict=True)]
    parts.append(StagePart(middle, stage + 1, stage, no_channels))
    parts += [
        StagePart(block, own, own - 1 if own != following else None, no_channels)
        for block, own, following in zip(up, reversed(stages), [*reversed(stages[:-1]), 0], strict=True)
    ]
    return Denoiser(model, tuple(parts), kind_of(nn.ModuleList(down[: stages.count(1)])), is_controlled)


def is_controlled(arguments: Arguments) -> bool:
    """Whether a UNet of ldm is called with the features of a ControlNet."""
    return arguments.get("control") is not None


def called_with_timestep(model: nn.Module) -> Denoiser | None:
    """Whatever is called with latents and a timestep, transformers above all: it is known by its output alone."""
    taken = arguments_of(type(model))
    name = type(model).__name__
    other = is_named(model, NOT_DENOISERS) or ("ControlNet" in name and not name.startswith("UNet"))
    return None if other or taken_in_lists(taken) or TIMESTEPS.isdisjoint(taken) else Denoiser(model, (), "")


NOT_DENOISERS = {
    "Transformer2DModel",  # of UNets
    "TransformerTemporalModel",
    "PreTrainedModel",  # text encoders
    "PriorTransformer",  # of embeddings
}
TO_THE_PICTURE = {
    "HiDreamImageTransformer2DModel",
    "Lumina2Transformer2DModel",
    "LuminaNextDiT2DModel",
    "NucleusMoEImageTransformer2DModel",
}
TIMESTEPS = {"timestep", "timesteps", "t", "timestep_ratio"}


@cache
def arguments_of(kind: type) -> Mapping[str, inspect.Parameter]:
    """What models of a class are called with; nothing where it is no Python that tells (TorchScript)."""
    forward = getattr(kind, "forward", None)
    found = dict(inspect.signature(forward).parameters) if inspect.isfunction(forward) else {}
    found.pop("self", None)
    return found


def taken_in_lists(arguments: Mapping[str, inspect.Parameter]) -> bool:
    """Whether a model takes its latents as a list (Z-Image)."""
    return any("list[" in str(parameter.annotation).lower() for parameter in list(arguments.values())[:1])


@dataclass(frozen=True)
class NoFeatures:
    """Stands in for the features of a block, and for so many that go to the way up: added to whatever, and dropped."""

    handed_up: int = 0

    def __call__(self, x: Tensor) -> Any:
        nothing = x.new_zeros(())
        return (nothing, (nothing,) * self.handed_up) if self.handed_up else nothing


def no_channels(x: Tensor) -> Tensor:
    """Features without channels, which can be put beside others."""
    return x[:, :0, :1, :1]


def kind_of(finest: nn.Module) -> str:
    names = {type(module).__name__ for module in finest.modules()}
    return "attention" if any("Attention" in name for name in names) else "convolutions"


def processors(model: nn.Module) -> set[type]:
    """The classes of what computes the attention of a model."""
    return {type(module.processor) for module in model.modules() if hasattr(module, "processor")}


def mixes_rows(model: nn.Module) -> bool:
    """Whether attention may look from one row of the batch at another, or do otherwise in some of them."""
    return not all(map(computes_each_row, processors(model)))


def computes_each_row(processor: type) -> bool:
    """Whether a processor is known to do the same in each row, whatever its place is in the batch."""
    if processor.__module__.startswith("diffusers."):
        return not any(part in processor.__name__ for part in ("PAG", "Perturbed", "CrossFrame"))
    return processor.__name__ in ROW_BY_ROW


ROW_BY_ROW = {*PLAIN, "IPAttnProcessor", "IPAttnProcessor2_0"}


def shows_attention(model: nn.Module) -> bool:
    """Whether somebody looks at the maps of attention, which must then be computed in every step (SAG, LEDITS++)."""
    return any(shows_map(processor) for processor in processors(model))


def shows_map(processor: type) -> bool:
    own = processor.__module__.startswith("diffusers.")
    return looks_closer(processor) if not own else any(part in processor.__name__ for part in ("Store", "LEDITS"))
