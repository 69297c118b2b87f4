"""Guarantee 7: every way of calling, every dtype."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from promises import BLOCKS, among, both, gradients, over, over_blocks, over_zoo, tensors_in
from torch import Tensor
from torch.utils._pytree import tree_map
from versions import HALVES
from zoo import (
    ZOO,
    Host,
    image_keys,
    is_image_attention,
    model_of,
    noise,
    reduced_everywhere,
    run,
    small_unet,
    unet_inputs,
)

import todome
from todome import Downsample, Merge


def run_by_position(target: Any, inputs: dict[str, Any]) -> Tensor:
    call = inspect.signature(model_of(target).forward).bind(**inputs)
    call.apply_defaults()
    assert len(call.args) >= len(inputs) - 2
    with torch.no_grad():
        output = model_of(target)(*call.args, **call.kwargs)
    return torch.cat([tensor.flatten() for tensor in tensors_in(output)])


@over_zoo
def test_calls_by_keyword_and_by_position_agree(host: Host):
    """Half of the hosts with each kind: how a model is called is seen by what both of them share."""
    target, kind = host.build(), (Downsample, Merge)[ZOO.index(host) % 2]
    dense = host.run(target)
    patch = todome.apply(target, reduced_everywhere(kind, host))
    patch.at(3, 10)
    expected = host.run(target)
    assert torch.equal(run_by_position(target, host.inputs()), expected.flatten())
    assert not torch.equal(expected, dense)


def hidden_right_half(grid: tuple[int, int]) -> Tensor:
    """True where a token may be seen. (1, tokens)"""
    visible = torch.ones(1, *grid, dtype=torch.bool)
    visible[..., grid[1] // 2 :] = False
    return visible.flatten(1)


MASKS: dict[str, Callable[[Tensor], dict[str, Tensor]]] = {
    "sd1": lambda visible: {"attention_mask": visible.logical_not().float()[:, None] * -1e9},
    "ldm1": lambda visible: {"mask": visible},
}


@both
@among(*MASKS)
def test_a_mask_on_self_attention_goes_on_hiding_tokens(host: Host, kind: type):
    target, grid = host.build(), host.grids[0]
    attention = next(module for name, module in target.named_modules() if is_image_attention(name))
    visible = hidden_right_half(grid)
    todome.apply(target, Downsample(factor=2) if kind is Downsample else Merge()).at(3, 10)
    host.run(target)  # so that the grid is known
    x = noise(1, grid[0] * grid[1], attention.to_q.in_features)
    changed = torch.where(visible[..., None], x, x + 1)
    with torch.no_grad():
        before, after = (attention(tokens, **MASKS[host.name](visible))[visible] for tokens in (x, changed))
        unmasked = attention(changed)[visible]
    assert torch.equal(before, after)
    assert not torch.allclose(unmasked, after, atol=1e-4)


def test_a_mask_can_be_given_to_the_whole_model():
    """One level of attention: diffusers passes the same mask to all of them."""
    flat_unet = small_unet(
        block_out_channels=(8,), down_block_types=("CrossAttnDownBlock2D",), up_block_types=("CrossAttnUpBlock2D",)
    )
    mask = hidden_right_half((16, 18)).expand(2, -1)
    patch = todome.apply(flat_unet, Downsample(factor=2))
    patch.at(0, 10)
    masked = run(flat_unet, **unet_inputs(), attention_mask=mask)
    unmasked = run(flat_unet, **unet_inputs(), attention_mask=torch.ones_like(mask))
    torch.testing.assert_close(unmasked, run(flat_unet, **unet_inputs()))
    assert not torch.allclose(masked, unmasked, atol=1e-4)


def cast(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    return tree_map(lambda x: x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x, inputs)


CASTABLE = [host for host in BLOCKS if not host.name.startswith("ldm")]  # ldm casts to its own dtype and wants autocast


@pytest.mark.parametrize("dtype", HALVES)
@both
@over(CASTABLE)
def test_half_precision_is_close_to_single(host: Host, kind: type, dtype: torch.dtype):
    target = host.build()
    changes = {"random": False} if kind is Merge else {}
    todome.apply(target, reduced_everywhere(kind, host, **changes)).at(3, 10)
    single = host.run(target)
    target.to(dtype)
    half = run(target, **cast(host.inputs(), dtype))
    assert half.dtype == dtype
    assert (half.float() - single).abs().mean() < 0.1 * single.abs().mean()


@over_blocks
def test_autocast_reduces_as_well(host: Host):
    target = host.build()
    dense = image_keys(host, target)
    for kind in (Downsample, Merge):
        todome.apply(target, reduced_everywhere(kind, host))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            seen = image_keys(host, target)
        assert all(seen[name] < keys for name, keys in dense.items())


@both
@among("sd1", "sdxl", "svd", "ldm2", "sgm")
def test_inference_mode_and_then_training_on_one_patch(host: Host, kind: type):
    target = host.build()
    patch = todome.apply(target, reduced_everywhere(kind, host))
    with torch.inference_mode():
        patch.at(3, 10)
        host.run(target)
    trained = gradients(model_of(target), [host.inputs()])
    patch.remove()
    fresh = todome.apply(target, reduced_everywhere(kind, host))
    fresh.at(3, 10)
    torch.testing.assert_close(trained, gradients(model_of(target), [host.inputs()]))


@both
@among("sd1", "ldm1")
def test_applied_inside_inference_mode(host: Host, kind: type):
    target = host.build()
    with torch.inference_mode():
        patch = todome.apply(target, reduced_everywhere(kind, host))
        patch.at(3, 10)
        expected = host.run(target)
    patch.at(4, 10)
    patch.at(3, 10)
    gradients(model_of(target), [host.inputs()])
    assert torch.equal(host.run(target), expected)


@over_blocks
def test_odd_batch_sizes(host: Host):
    target = host.build()
    dense = run(target, **host.inputs(3))
    for kind in (Downsample, Merge):
        patch = todome.apply(target, reduced_everywhere(kind, host))
        assert not torch.allclose(run(target, **host.inputs(3)), dense, atol=1e-4)
        assert set(host.grids) == {grid for level in patch.levels for grid in level.grids}


@over_blocks
def test_print_works_on_a_meta_device(host: Host):
    target = host.build()
    model_of(target).to("meta")
    patch = todome.apply(target, reduced_everywhere(Downsample, host))
    assert str(patch).count("not called yet") == host.levels
    inputs = tree_map(lambda x: x.to("meta") if isinstance(x, Tensor) else x, host.inputs())
    assert run(target, **inputs).is_meta
    assert str(patch).count(" -> ") == host.levels
    assert repr(model_of(target))
