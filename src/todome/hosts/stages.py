"""The stages of a UNet, which a partial step may leave out, and what stands in for each module that is left out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .transformers import is_transformer
from .unet import is_named


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


@dataclass(frozen=True, eq=False)
class Denoiser:
    """A model that is called once a step with latents and a timestep, and gives one tensor of their size.

    Attributes:
        model: The model.
        parts: Those that can be left out, where it is a UNet.
        finest: What its finest stage is made of: "attention", "convolutions"; "" where it has no stages.
        extras: Arguments with which deep stages cannot be left out.
    """

    model: nn.Module
    parts: tuple[StagePart, ...]
    finest: str
    extras: tuple[str, ...] = ()


def find_denoiser(model: nn.Module) -> Denoiser | None:
    """The description of a model that reuse over steps knows."""
    for describe in (unet_of_diffusers, unet_of_ldm, transformer):
        found = describe(model)
        if found is not None:
            return found
    return None


def unet_of_diffusers(model: nn.Module) -> Denoiser | None:
    down, middle, up = (getattr(model, name, None) for name in ("down_blocks", "mid_block", "up_blocks"))
    if not isinstance(down, nn.ModuleList) or not isinstance(up, nn.ModuleList) or not hasattr(model, "conv_out"):
        return None
    if len(down) != len(up) or middle is None or not all(hasattr(block, "resnets") for block in down):
        return Denoiser(model, (), "convolutions")
    parts = [StagePart(block, stage, None, NoFeatures(residuals(block))) for stage, block in enumerate(down, 1)]
    parts.append(StagePart(middle, len(down) + 1, len(down), NoFeatures()))
    stages = range(len(up), 0, -1)
    parts += [StagePart(block, stage, stage - 1, NoFeatures()) for stage, block in zip(stages, up, strict=True)]
    extras = ("down_intrablock_additional_residuals",)  # of T2I-Adapters: added to features in place
    return Denoiser(model, tuple(parts), kind_of(down[0]), extras)


def residuals(block: Any) -> int:
    """How many features a block on the way down hands to the way up."""
    return len(block.resnets) + bool(getattr(block, "downsamplers", None))


def unet_of_ldm(model: nn.Module) -> Denoiser | None:
    down, middle, up = (getattr(model, name, None) for name in ("input_blocks", "middle_block", "output_blocks"))
    if not isinstance(down, nn.ModuleList) or not isinstance(up, nn.ModuleList) or middle is None:
        return None
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
    return Denoiser(model, tuple(parts), kind_of(nn.ModuleList(down[: stages.count(1)])), ("control",))


def transformer(model: nn.Module) -> Denoiser | None:
    """Whatever says by its name that it is one: it is known by its output alone."""
    return Denoiser(model, (), "") if is_transformer(model) and not is_named(model, NOT_DENOISERS) else None


NOT_DENOISERS = {"Transformer2DModel", "PreTrainedModel"}  # of UNets; text encoders


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


def splits_batch(model: nn.Module) -> Iterator[str]:
    """The processors of attention that tell the rows of a batch apart by their place (PAG)."""
    for module in model.modules():
        name = type(getattr(module, "processor", None)).__name__
        if "PAG" in name or "Perturbed" in name:
            yield name
