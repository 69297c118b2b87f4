"""Every bad input has a text that names the field, the value given, what is allowed and the remedy."""

import re
from collections.abc import Callable
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
    Transformer2DModel,
    UNet2DModel,
)
from torch import nn
from zoo import SIDE, TEXT, WIDTH, draw, small_unet, tiny_pipeline, tiny_vae

import todome
from todome import Downsample, Merge, NothingToReduce, Reuse

NAN, INF = float("nan"), float("inf")


def refused(kind: type[Exception], field: str, value: Any) -> Any:
    """Sentences that name the field and the value, what is allowed, and what to do instead."""
    given = re.escape(f"{field}={value!r} cannot be used.")
    return pytest.raises(kind, match=rf"^{given} Allowed: .+\. .+\.$")


def call(unet: Any, side: int = SIDE, height: int | None = None) -> None:
    unet(torch.zeros(1, 4, height or side, side), 5, torch.zeros(1, TEXT, WIDTH))


SETTINGS = [
    (Downsample, "factor", ValueError, [0, -2.5, 0.99, NAN, INF, (2, 0), (2, NAN), (), []]),
    (Downsample, "factor", TypeError, [True, "2", "AUTO", "", None, 1j, {2: 2}, (2, "2"), ("auto", 2), np.ones(2)]),
    (Downsample, "phase", ValueError, ["Dither", "", None, 0, ["dither"]]),
    (Downsample, "start", ValueError, [-0.1, 1.1, NAN, True, "0.5", None]),
    (Merge, "stop", ValueError, [-0.1, 1.1, NAN, True, "0.5", None]),
    (Merge, "ratio", ValueError, [-0.1, 0.76, 1, 7, NAN, (0.5, 0.8), ()]),
    (Merge, "ratio", TypeError, ["0.5", "", None, True, (0.5, "0.5"), (0.5, False)]),
    (Merge, "stride", ValueError, [(0, 2), (2, -1), (1, 1), (2, 2, 2), (), 2, (2, 2.0), (2, True), None, "22", [2, 0]]),
    (Merge, "attention", ValueError, [False]),
    (Merge, "random", TypeError, [1, None, "yes"]),
    (Merge, "seed", ValueError, [-1, 1.0, True, None, "0"]),
    (Reuse, "keep", ValueError, [0, -45, 19.9, 80.1, NAN, INF, -INF, True, "45", "", (40,), 45j, [45]]),
    (Reuse, "every", ValueError, [0, -1, 2.0, 1001, NAN, INF, True, "2", (2,), 2.5]),
    (Reuse, "warmup", ValueError, [-0.1, 1.1, NAN, INF, True, "0.3", (0.3,), 10**40]),
    (Reuse, "stages", ValueError, [-1, 1.0, 1001, NAN, INF, True, "1", (1,), 1.5]),
    (Reuse, "guidance", TypeError, [1, 0, None, "yes"]),
]


@pytest.mark.parametrize(("reduction", "field", "kind", "values"), SETTINGS)
def test_settings_that_mean_nothing(reduction, field, kind, values):
    for value in values:
        with refused(kind, field, value):
            reduction(**{field: value})


def test_what_is_allowed_depends_on_other_settings():
    with pytest.raises(ValueError, match=r"from 0 to 0\.888889 with stride=\(3, 3\)"):
        Merge(0.9, stride=(3, 3))
    with pytest.raises(ValueError, match=r"^start=0\.8 .* which is 0\.3\. .* raise stop to 0\.8"):
        Downsample(start=0.8, stop=0.3)


@pytest.mark.parametrize(
    ("reduction", "surplus"), [(Downsample((2, 2, 2)), 1), (Downsample([2, 1, 1, 1]), 2), (Merge((0.5, 0.5, 0.5)), 1)]
)
def test_more_levels_than_the_model_has_leave_a_model_as_it_is(reduction, surplus):
    unet, field = small_unet(), reduction.level_field
    before = {name: dict(vars(module)) for name, module in unet.named_modules()}
    with refused(ValueError, field, getattr(reduction, field)) as error:
        todome.apply(unet, reduction)
    assert "at most 2 values" in str(error.value)
    assert f"the last {surplus}." in str(error.value)
    assert before == {name: dict(vars(module)) for name, module in unet.named_modules()}
    patch = todome.apply(unet, Downsample(2))
    with pytest.raises(ValueError, match=field):
        todome.apply(unet, reduction)
    call(unet)
    assert patch.levels[0].grids == {(8, 8): 16}  # as before


@pytest.mark.parametrize(("reduction", "field"), [(Downsample(8.5), "factor"), (Merge(stride=(9, 2)), "stride")])
def test_what_is_larger_than_the_grid(reduction, field):
    unet = small_unet()
    todome.apply(unet, reduction)
    call(unet, side=9)
    with refused(ValueError, field, getattr(reduction, field)) as error:
        call(unet, side=9, height=6)
    assert "6x9 tokens" in str(error.value)


@pytest.mark.parametrize("target", ["stable-diffusion", None, 3, SimpleNamespace(model=1), dict], ids=repr)
def test_arguments_of_the_wrong_type(target):
    for verb in (todome.apply, todome.remove, todome.apply_patch):
        with refused(TypeError, "target", target):
            verb(target)
    other: Any = target or 2  # None is the default
    with refused(TypeError, "lever", other):
        todome.apply(small_unet(), other)
    with refused(TypeError, "scheduler", other):
        todome.apply(small_unet(), Downsample(2), scheduler=other)


def unconditional_unet() -> UNet2DModel:
    blocks: Any = {"down_block_types": ("AttnDownBlock2D",), "up_block_types": ("AttnUpBlock2D",)}
    return UNet2DModel(sample_size=8, layers_per_block=1, block_out_channels=(8,), norm_num_groups=4, **blocks)


def dit(kind: Any = DiTTransformer2DModel, **more: Any) -> Any:
    """With `Transformer2DModel` it is DiT as diffusers had it before it had a class of its own."""
    return kind(num_attention_heads=2, attention_head_dim=4, in_channels=4, num_layers=1, sample_size=8, **more)


def old_dit() -> Any:
    return dit(Transformer2DModel, patch_size=2, num_embeds_ada_norm=10, norm_type="ada_norm_zero")


NO_BLOCKS, NO_CONVOLUTIONS = "has no BasicTransformerBlock", "transformer without convolutions"
OTHERS: list[tuple[str, Callable[[], Any]]] = [
    (NO_CONVOLUTIONS, dit),
    (NO_CONVOLUTIONS, old_dit),
    (NO_CONVOLUTIONS, lambda: DiTPipeline(dit(), tiny_vae(), DDIMScheduler())),  # pyright: ignore[reportArgumentType]
    (NO_BLOCKS, lambda: nn.Linear(2, 2)),
    (NO_BLOCKS, unconditional_unet),
    (NO_BLOCKS, lambda: DDPMPipeline(unconditional_unet(), DDPMScheduler())),
]


@pytest.mark.parametrize(("reason", "build"), OTHERS)
def test_models_that_cannot_be_reduced_are_named_with_the_reason(reason, build):
    model = build()
    with pytest.raises(NothingToReduce, match=rf"^target={type(model).__name__} .*{reason}.* Allowed: .*UNet2DC"):
        todome.apply(model, Downsample(2))
    with pytest.raises(NothingToReduce, match=reason):
        todome.apply_patch(model)
    assert todome.remove(model) is None


@pytest.mark.parametrize("reduction", [Downsample(2, stop=0.6), Merge(start=0.2, stop=0.6)], ids=repr)
def test_window_on_a_bare_model_without_a_scheduler(reduction):
    unet = small_unet()
    todome.apply(unet, reduction)
    with refused(RuntimeError, "(start, stop)", (reduction.start, reduction.stop)):
        call(unet)


@pytest.mark.parametrize("where", [(-1, 10), (10, 10), (0, 0), (0.5, 10), (1, 9.0), (True, 10), (None, None)], ids=repr)
def test_step_that_is_none_of_the_steps(where):
    patch = todome.apply(small_unet(), Downsample(2))
    with refused(ValueError, "(step, steps)", where):
        patch.at(*where)


def test_auto_that_settles_on_one_warns_once_and_says_how_to_force_more():
    pipeline = tiny_pipeline()
    todome.apply(pipeline, Downsample())
    with pytest.warns(UserWarning, match=r'^factor="auto" .* 8x8 tokens, .* todome\.Downsample\(factor=2\)') as caught:
        draw(pipeline, steps=3)
    assert len(caught) == 1
    draw(pipeline, steps=2)  # where a warning would be an error
    todome.apply(pipeline, Downsample(1))
    draw(pipeline, steps=2)  # as it would be of what was chosen


def test_auto_reduces_grids_of_many_tokens():
    unet = small_unet()
    patch = todome.apply(unet)
    call(unet, side=66)
    assert patch.levels[0].grids == {(66, 66): 33 * 33}
