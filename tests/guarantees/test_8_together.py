"""Guarantee 8: todome gets on with its neighbours, whoever came first."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from DeepCache import DeepCacheSDHelper
from diffusers import StableDiffusionPAGPipeline
from neighbours import (
    MERGE,
    NEIGHBOURS,
    PERTURBED,
    Neighbour,
    chunked,
    neighbour_first,
    nothing,
    over_neighbours,
    over_reductions,
    third_step,
    todome_first,
)
from torch import Tensor
from zoo import (
    host_named,
    image_keys,
    mini_unet,
    picture,
    recorded,
    run,
    small_unet,
    tiny_pipeline,
    unet_inputs,
)

import todome
from todome import Downsample, Merge


@functools.cache
def todome_alone(reduction: Any) -> Tensor:
    return third_step(Neighbour("nobody", nothing), *todome_first(Neighbour("nobody", nothing), reduction))


@over_reductions
@over_neighbours
def test_both_orders_give_the_same_output_and_neither_undoes_the_other(neighbour: Neighbour, reduction: Any):
    alone = small_unet()
    neighbour.join(alone)
    dense = neighbour.run(alone)
    outputs = []
    for meet in (neighbour_first, todome_first):
        unet, patch = meet(neighbour, reduction)
        with recorded(unet, r"attn1\.to_k$") as seen:
            outputs.append(third_step(neighbour, unet, patch))
        if neighbour.name != "pag":  # of which there is a layer that is left dense, see below
            assert {calls[0].shape[1] for calls in seen.values()} == ({144, 36} if reduction is MERGE else {72, 16})
        patch.remove()
        assert torch.equal(neighbour.run(unet), dense), "the neighbour is left alone"
    assert torch.equal(*outputs)
    assert not torch.allclose(outputs[0], dense, atol=1e-4)
    if neighbour.changes_output:
        assert not torch.allclose(outputs[0], todome_alone(reduction), atol=1e-4)
    elif not (neighbour.name.startswith("chunked") and reduction is MERGE):  # chunks are not merged
        torch.testing.assert_close(outputs[0], todome_alone(reduction), rtol=1e-4, atol=1e-5)


def test_a_perturbed_layer_of_pag_is_left_dense():
    """Its processor reads nothing but its input, whatever else it is handed."""
    unet, patch = todome_first(NEIGHBOURS[7], Downsample(factor=(1, 2)))
    patch.at(3, 10)
    assert image_keys(host_named("sd2"), unet)[PERTURBED] == 72


def test_chunks_as_large_as_the_merged_sequence():
    """Chunks of tokens are not merged, and a chunk of 144 must not be taken for the 144 tokens left of 288."""
    outputs = []
    for size in (144, 96):
        unet = mini_unet()
        chunked(1, size)(unet)
        todome.apply(unet, Merge(feed_forward=True)).at(3, 10)
        outputs.append(run(unet, **unet_inputs()))
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)


@over_reductions
def test_deepcache(pipe: Any, reduction: Any):
    helper = DeepCacheSDHelper(pipe=pipe)
    helper.set_params(cache_interval=2, cache_branch_id=0)
    dense = picture(pipe)
    helper.enable()
    cached = picture(pipe)
    todome.apply(pipe, reduction)
    both = picture(pipe)
    helper.disable()
    reduced = picture(pipe)
    helper.enable()
    assert torch.equal(picture(pipe), both)
    todome.remove(pipe)
    assert torch.equal(picture(pipe), cached)
    helper.disable()
    assert torch.equal(picture(pipe), dense)
    assert not any(torch.allclose(both, alone, atol=1e-4) for alone in (cached, reduced, dense))


@over_reductions
def test_a_pag_pipeline(reduction: Any):
    """PAG puts its own processors in for the time of a call."""
    pipe = tiny_pipeline(unet=small_unet(), kind=StableDiffusionPAGPipeline, pag_applied_layers="mid")
    dense = picture(pipe, pag_scale=3.0)
    patch = todome.apply(pipe, reduction)
    reduced, unguided = picture(pipe, pag_scale=3.0), picture(pipe, pag_scale=0.0)
    assert not torch.allclose(reduced, dense, atol=1e-4)
    assert not torch.allclose(reduced, unguided, atol=1e-4)
    patch.remove()
    assert torch.equal(picture(pipe, pag_scale=3.0), dense)


FUSED = "processor='FusedAttnProcessor2_0' cannot be used.*unfuse_qkv_projections"


def test_fused_projections_are_refused_by_apply_and_by_the_call():
    unet = small_unet()
    unet.fuse_qkv_projections()
    hooks = [dict(module._forward_pre_hooks) for module in unet.modules()]
    with pytest.raises(RuntimeError, match=FUSED):
        todome.apply(unet, Downsample(factor=2))
    assert [dict(module._forward_pre_hooks) for module in unet.modules()] == hooks
    unet.unfuse_qkv_projections()
    patch = todome.apply(unet, Downsample(factor=2))
    unet.fuse_qkv_projections()
    with pytest.raises(RuntimeError, match=FUSED):
        run(unet, **unet_inputs())
    patch.remove()
    run(unet, **unet_inputs())


@pytest.mark.parametrize("meet", [neighbour_first, todome_first])
def test_fused_projections_merge(meet: Callable):
    fused = Neighbour("fused", lambda unet: unet.fuse_qkv_projections())
    together = third_step(fused, *meet(fused, Merge()))
    expected = third_step(fused, *meet(Neighbour("", nothing), Merge()))
    torch.testing.assert_close(together, expected, rtol=1e-4, atol=1e-5)
