"""Every bad input has a text that names the field, the value given, what is allowed and the remedy."""

import re
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DiTPipeline,
    DiTTransformer2DModel,
    FluxTransformer2DModel,
    PixArtTransformer2DModel,
    SD3Transformer2DModel,
    Transformer2DModel,
    UNet2DModel,
)
from torch import nn
from zoo import SIDE, TEXT, WIDTH, ddim, draw, small_unet, tiny_pipeline, tiny_vae

import todome
from todome import Downsample, Merge, NothingToReduce

FACTORS = 'Allowed: "auto", a number of at least 1, or one number per level.'
RATIOS = "Allowed: from 0 to 0.75 with stride=(2, 2), or one such number per level."
STRIDES = (
    "Allowed: a tuple of two whole numbers of at least 1 (height, width), not both 1. The default is stride=(2, 2)."
)
FRACTIONS = "Allowed: a fraction of the steps from 0 to 1. start=0, stop=1 is the whole run."
LACKING = "has no BasicTransformerBlock with self-attention over image tokens."
SUPPORTED = (
    "Allowed: UNet2DConditionModel and its relatives, UNetMotionModel, UNetSpatioTemporalConditionModel, "
    "UNet3DConditionModel, ControlNetModel, and the UNetModel of ldm and sgm. Leave it dense."
)
TRANSFORMER = (
    "cannot be used: this is a transformer without convolutions, and fewer keys break its pictures: 9 dB to dense with "
    "ToDo and 21 dB dithered, where a UNet keeps 39 (the page Transformers of the documentation has the figures)."
)


def says(kind: type[Exception], text: str) -> Any:
    """The whole message, word for word."""
    return pytest.raises(kind, match=f"^{re.escape(text)}$")


def call(unet: Any, side: int = SIDE) -> None:
    unet(torch.zeros(1, 4, side, side), 5, torch.zeros(1, TEXT, WIDTH))


@pytest.mark.parametrize("factor", [0, -1, -2.5, 0.5, 0.99, float("nan"), float("inf"), (2, 0), (2, float("nan"))])
def test_factor_below_one_or_not_finite(factor):
    with says(ValueError, f"factor={factor!r} cannot be used. {FACTORS} Use factor=1 to leave a level dense."):
        Downsample(factor)


NO_NUMBERS = [True, False, "2", "AUTO", "", None, 1j, {2: 2}, (2, "2"), (2, True), ("auto", 2), np.array([2, 2])]


@pytest.mark.parametrize("factor", NO_NUMBERS, ids=repr)
def test_factor_of_the_wrong_type(factor):
    with says(TypeError, f"factor={factor!r} cannot be used. {FACTORS} Use factor=2 to keep 1 key in 4."):
        Downsample(factor)


@pytest.mark.parametrize("factor", [(), []], ids=repr)
def test_factor_of_no_level(factor):
    with says(ValueError, f"factor={factor} cannot be used. {FACTORS} Use factor=(2, 2) for the first two levels."):
        Downsample(factor)


@pytest.mark.parametrize(
    ("reduction", "given", "surplus"),
    [
        (Downsample((2, 2, 2)), "factor=(2, 2, 2)", 1),
        (Downsample([2, 1, 1, 1]), "factor=(2, 1, 1, 1)", 2),
        (Merge((0.5, 0.5, 0.5)), "ratio=(0.5, 0.5, 0.5)", 1),
    ],
    ids=repr,
)
def test_more_levels_than_the_model_has(reduction, given, surplus):
    allowed = "Allowed: at most 2 values, one for each level this model has."
    with says(ValueError, f"{given} cannot be used. {allowed} Leave out the last {surplus}."):
        todome.apply(small_unet(), reduction)


def test_factor_larger_than_the_grid():
    unet = small_unet()
    todome.apply(unet, Downsample(8.5))
    call(unet, side=9)
    allowed = "Allowed: at most 6 on a grid of 6x8 tokens."
    remedy = "Lower the factor, or make the picture larger."
    with says(ValueError, f"factor=8.5 cannot be used. {allowed} {remedy}"):
        unet(torch.zeros(1, 4, 6, 8), 5, torch.zeros(1, TEXT, WIDTH))


@pytest.mark.parametrize("ratio", [-0.1, 0.76, 1, 7, float("nan"), (0.5, 0.8)])
def test_ratio_beyond_what_the_stride_allows(ratio):
    with says(ValueError, f"ratio={ratio!r} cannot be used. {RATIOS} Lower the ratio or use a larger stride."):
        Merge(ratio)


def test_ratio_names_the_maximum_of_its_stride():
    allowed = "Allowed: from 0 to 0.888889 with stride=(3, 3), or one such number per level."
    with says(ValueError, f"ratio=0.9 cannot be used. {allowed} Lower the ratio or use a larger stride."):
        Merge(0.9, stride=(3, 3))


@pytest.mark.parametrize("ratio", ["0.5", "", None, True, (0.5, "0.5"), (0.5, False)], ids=repr)
def test_ratio_of_the_wrong_type(ratio):
    with says(TypeError, f"ratio={ratio!r} cannot be used. {RATIOS} Use ratio=0.5 to merge half of the tokens."):
        Merge(ratio)


def test_ratio_of_no_level():
    with says(ValueError, f"ratio=() cannot be used. {RATIOS} Use ratio=(0.5, 0.3) for the first two levels."):
        Merge(())


@pytest.mark.parametrize(
    "stride", [(0, 2), (2, -1), (1, 1), (2, 2, 2), (2,), (), 2, (2, 2.0), (2, True), None, "22", [2, 0]], ids=repr
)
def test_bad_stride(stride):
    with says(ValueError, f"stride={stride!r} cannot be used. {STRIDES}"):
        Merge(stride=stride)


def test_stride_larger_than_the_grid():
    unet = small_unet()
    todome.apply(unet, Merge(stride=(9, 2)))
    allowed = "Allowed: at most the grid, which is 8x8 tokens."
    remedy = "Lower the stride, or make the picture larger."
    with says(ValueError, f"stride=(9, 2) cannot be used. {allowed} {remedy}"):
        call(unet)


def test_merging_nothing():
    allowed = "Allowed: at least one of attention, cross_attention, feed_forward."
    with says(ValueError, f"attention=False cannot be used. {allowed} Leave attention=True."):
        Merge(attention=False)


@pytest.mark.parametrize("kind", [Downsample, Merge])
@pytest.mark.parametrize("field", ["start", "stop"])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), True, "0.5", None])
def test_window_out_of_range(kind, field, value):
    with says(ValueError, f"{field}={value!r} cannot be used. {FRACTIONS}"):
        kind(**{field: value})


@pytest.mark.parametrize("kind", [Downsample, Merge])
def test_start_after_stop(kind):
    remedy = "Swap them, or raise stop to 0.8 or more."
    with says(ValueError, f"start=0.8 cannot be used. Allowed: at most stop, which is 0.3. {remedy}"):
        kind(start=0.8, stop=0.3)


@pytest.mark.parametrize("phase", ["Dither", "", None, 0, ["dither"]], ids=repr)
def test_unknown_phase(phase):
    allowed = 'Allowed: "dither", "fixed" or "random".'
    with says(ValueError, f'phase={phase!r} cannot be used. {allowed} "dither" is closest to the dense picture.'):
        Downsample(2, phase=phase)


@pytest.mark.parametrize("kind", [Downsample, Merge])
@pytest.mark.parametrize("seed", [-1, 1.0, True, None, "0"], ids=repr)
def test_bad_seed(kind, seed):
    allowed = "Allowed: a whole number of at least 0."
    with says(ValueError, f"seed={seed!r} cannot be used. {allowed} The default is seed=0."):
        kind(seed=seed)


@pytest.mark.parametrize("target", ["stable-diffusion", None, 3, SimpleNamespace(model=1), dict], ids=repr)
def test_target_that_is_no_model(target):
    allowed = "Allowed: a diffusers pipeline, a torch model, or an object with .model.diffusion_model."
    for verb in (todome.apply, todome.remove, todome.apply_patch):
        with says(TypeError, f"target={target!r} cannot be used. {allowed} Load the model first and pass the object."):
            verb(target)


def unconditional_unet() -> UNet2DModel:
    blocks: Any = {"down_block_types": ("AttnDownBlock2D",), "up_block_types": ("AttnUpBlock2D",)}
    return UNet2DModel(sample_size=8, layers_per_block=1, block_out_channels=(8,), norm_num_groups=4, **blocks)


def sd3() -> SD3Transformer2DModel:
    sizes: Any = {"attention_head_dim": 4, "num_attention_heads": 2, "caption_projection_dim": 8}
    joint: Any = {"joint_attention_dim": 8, "pooled_projection_dim": 8}
    return SD3Transformer2DModel(sample_size=8, in_channels=4, num_layers=1, pos_embed_max_size=8, **sizes, **joint)


def flux() -> FluxTransformer2DModel:
    sizes: Any = {"attention_head_dim": 4, "num_attention_heads": 2, "axes_dims_rope": (2, 1, 1)}
    joint: Any = {"joint_attention_dim": 8, "pooled_projection_dim": 8}
    return FluxTransformer2DModel(in_channels=4, num_layers=1, num_single_layers=1, **sizes, **joint)


def linear() -> nn.Linear:
    return nn.Linear(2, 2)


def pixart() -> PixArtTransformer2DModel:
    sizes: Any = {"num_attention_heads": 2, "attention_head_dim": 4, "num_layers": 1, "cross_attention_dim": 8}
    return PixArtTransformer2DModel(sample_size=8, caption_channels=8, use_additional_conditions=False, **sizes)


def dit() -> DiTTransformer2DModel:
    return DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=4, in_channels=4, num_layers=1, sample_size=8
    )


def old_dit() -> Transformer2DModel:
    """DiT as diffusers had it before it had a class of its own."""
    sizes: Any = {"num_attention_heads": 2, "attention_head_dim": 4, "in_channels": 4, "sample_size": 8}
    return Transformer2DModel(patch_size=2, num_embeds_ada_norm=10, norm_type="ada_norm_zero", **sizes)


@pytest.mark.parametrize("make", [sd3, flux, pixart, dit, old_dit])
def test_transformers_are_refused_with_the_reason(make):
    model = make()
    for target in (model, nn.Sequential(model)[0]):
        with says(NothingToReduce, f"target={type(model).__name__} {TRANSFORMER} {SUPPORTED}"):
            todome.apply(target)
    with says(NothingToReduce, f"target={type(model).__name__} {TRANSFORMER} {SUPPORTED}"):
        todome.apply_patch(model)


def test_a_pipeline_of_a_transformer_is_refused_with_the_reason():
    scheduler: Any = DDIMScheduler()
    pipeline = DiTPipeline(dit(), tiny_vae(), scheduler)
    with says(NothingToReduce, f"target=DiTPipeline {TRANSFORMER} {SUPPORTED}"):
        todome.apply(pipeline)


@pytest.mark.parametrize("make", [linear, unconditional_unet])
def test_models_that_cannot_be_reduced(make):
    model = make()
    for verb in (todome.apply, todome.apply_patch):
        with says(NothingToReduce, f"target={type(model).__name__} {LACKING} {SUPPORTED}"):
            verb(model)


def test_pipeline_whose_denoiser_cannot_be_reduced():
    with says(NothingToReduce, f"target=DDPMPipeline {LACKING} {SUPPORTED}"):
        todome.apply(DDPMPipeline(unconditional_unet(), DDPMScheduler()))


def test_removing_from_a_model_that_cannot_be_reduced_is_fine():
    assert todome.remove(nn.Linear(2, 2)) is None


def test_pipeline_without_a_denoiser():
    pipeline = tiny_pipeline()
    pipeline.unet = None
    with says(NothingToReduce, f"target=StableDiffusionPipeline {LACKING} {SUPPORTED}"):
        todome.apply(pipeline)


@pytest.mark.parametrize("reduction", [2, "auto", Downsample, {"factor": 2}], ids=repr)
def test_reduction_of_the_wrong_type(reduction):
    allowed = "Allowed: todome.Downsample(...), todome.Merge(...) or todome.Plan.load(FILE)."
    with says(TypeError, f"reduction={reduction!r} cannot be used. {allowed} Use todome.Downsample(factor=2)."):
        todome.apply(small_unet(), reduction)


@pytest.mark.parametrize("scheduler", [20, "ddim", nn.Linear(2, 2)], ids=repr)
def test_scheduler_of_the_wrong_type(scheduler):
    allowed = "Allowed: an object with set_timesteps and step."
    remedy = "Pass pipe.scheduler, or call patch.at(step, steps) before each step."
    with says(TypeError, f"scheduler={scheduler!r} cannot be used. {allowed} {remedy}"):
        todome.apply(small_unet(), Downsample(2), scheduler=scheduler)


def window_error(start: float, stop: float) -> str:
    allowed = "Allowed: (0.0, 1.0) where the model is called outside of a run that todome can follow."
    remedy = (
        "Apply to the pipeline that runs it, or use apply(..., scheduler=...) and call set_timesteps before each run, "
        "or call patch.at(step, steps) before each step."
    )
    return f"(start, stop)={(start, stop)} cannot be used. {allowed} {remedy}"


@pytest.mark.parametrize("reduction", [Downsample(2, stop=0.6), Merge(start=0.2, stop=0.6)], ids=repr)
def test_window_on_a_bare_model_without_a_scheduler(reduction):
    unet = small_unet()
    todome.apply(unet, reduction)
    with says(RuntimeError, window_error(reduction.start, reduction.stop)):
        call(unet)


@pytest.mark.parametrize("where", [(-1, 10), (10, 10), (0, 0), (0.5, 10), (1, 9.0), (True, 10), (None, None)], ids=repr)
def test_step_that_is_none_of_the_steps(where):
    patch = todome.apply(small_unet(), Downsample(2))
    allowed = "Allowed: a whole step from 0 to steps - 1 of a whole number of steps."
    with says(ValueError, f"(step, steps)={where} cannot be used. {allowed} Call patch.at(i, n) before step i of n."):
        patch.at(*where)


def test_a_refused_reduction_leaves_no_trace():
    unet = small_unet()
    before = {name: dict(vars(module)) for name, module in unet.named_modules()}
    with pytest.raises(ValueError, match="factor"):
        todome.apply(unet, Downsample((2, 2, 2)))
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in unet.modules())
    assert before == {name: dict(vars(module)) for name, module in unet.named_modules()}


def test_a_refused_reduction_leaves_the_old_patch():
    unet = small_unet()
    patch = todome.apply(unet, Downsample(2))
    with pytest.raises(ValueError, match="factor"):
        todome.apply(unet, Downsample((2, 2, 2)))
    call(unet)
    assert patch.levels[0].grids == {(8, 8): 16}


AUTO_IS_DENSE = (
    'factor="auto" leaves this model dense: its finest grid has 8x8 tokens, and "auto" reduces grids of more than '
    "4096. Use todome.Downsample(factor=2) to reduce it all the same."
)


def test_auto_that_settles_on_one_warns_once():
    pipeline = tiny_pipeline()
    todome.apply(pipeline)
    with pytest.warns(UserWarning, match=f"^{re.escape(AUTO_IS_DENSE)}$") as caught:
        draw(pipeline, steps=3)
    assert len(caught) == 1
    draw(pipeline, steps=2)  # where a warning would be an error


def test_auto_that_reduces_does_not_warn():
    unet = small_unet()
    patch = todome.apply(unet)
    call(unet, side=66)
    assert patch.levels[0].grids == {(66, 66): 33 * 33}


def test_a_chosen_factor_of_one_does_not_warn():
    unet = small_unet()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        todome.apply(unet, Downsample(1), scheduler=ddim())
        call(unet)
    assert not caught
