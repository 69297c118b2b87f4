"""Guarantee 8, the neighbours of pipelines: they too get on, whoever came first."""

from collections.abc import Callable
from typing import Any

import torch
from DeepCache import DeepCacheSDHelper
from diffusers import StableDiffusionControlNetPipeline, StableDiffusionPAGPipeline
from neighbours import over_reductions, with_lora, with_model_offload
from torch import Tensor
from zoo import controlnet, noise, picture, small_unet, tiny_pipeline

import todome


def orders(pipe: Any, reduction: Any, join: Callable[[], Any], leave: Callable[[], Any]) -> list[Tensor]:
    """The pictures of: both together in either order, then each of the two left alone."""
    join()
    neighbour_alone = picture(pipe)
    patch = todome.apply(pipe, reduction)
    pictures = [picture(pipe)]
    patch.remove()
    assert torch.equal(picture(pipe), neighbour_alone)
    leave()
    todome.apply(pipe, reduction)
    todome_alone = picture(pipe)
    join()
    pictures.append(picture(pipe))
    leave()
    assert torch.equal(picture(pipe), todome_alone)
    todome.remove(pipe)
    return [*pictures, neighbour_alone, todome_alone]


def assert_they_get_on(pipe: Any, reduction: Any, join: Callable[[], Any], leave: Callable[[], Any]) -> None:
    dense = picture(pipe)
    first, second, *alone = orders(pipe, reduction, join, leave)
    assert torch.equal(first, second)
    assert not any(torch.allclose(first, other, atol=1e-4) for other in alone)
    assert torch.equal(picture(pipe), dense)


@over_reductions
def test_deepcache(pipe: Any, reduction: Any):
    helper = DeepCacheSDHelper(pipe=pipe)
    helper.set_params(cache_interval=2, cache_branch_id=0)
    assert_they_get_on(pipe, reduction, helper.enable, helper.disable)


@over_reductions
def test_freeu_of_a_pipeline(pipe: Any, reduction: Any):
    enable = lambda: pipe.enable_freeu(s1=0.9, s2=0.2, b1=1.5, b2=1.6)  # noqa: E731
    assert_they_get_on(pipe, reduction, enable, pipe.disable_freeu)


@over_reductions
def test_a_fused_lora_of_a_pipeline(pipe: Any, reduction: Any):
    with_lora(pipe.unet)
    pipe.unet.disable_adapters()
    join = lambda: (pipe.unet.enable_adapters(), pipe.fuse_lora())  # noqa: E731
    leave = lambda: (pipe.unfuse_lora(), pipe.unet.disable_adapters())  # noqa: E731
    dense = picture(pipe)
    first, second, *alone = orders_close(pipe, reduction, join, leave)
    torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-4)
    assert not any(torch.allclose(first, other, atol=1e-2) for other in (*alone, dense))


def orders_close(pipe: Any, reduction: Any, join: Callable[[], Any], leave: Callable[[], Any]) -> list[Tensor]:
    """As `orders`, for a neighbour that itself leaves rounding behind: weights that were fused and unfused."""
    join()
    neighbour_alone = picture(pipe)
    with todome.apply(pipe, reduction):
        pictures = [picture(pipe)]
    leave()
    with todome.apply(pipe, reduction):
        todome_alone = picture(pipe)
        join()
        pictures.append(picture(pipe))
    leave()
    return [*pictures, neighbour_alone, todome_alone]


def offload(pipe: Any) -> None:
    for model in (pipe.vae, pipe.unet):
        with_model_offload(model)


@over_reductions
def test_offload_of_a_pipeline(pipe: Any, reduction: Any):
    todome.apply(pipe, reduction)
    expected = picture(pipe)
    offload(pipe)
    assert torch.equal(picture(pipe), expected)
    offloaded = tiny_pipeline(unet=small_unet())
    offload(offloaded)
    todome.apply(offloaded, reduction)
    assert torch.equal(picture(offloaded), expected)


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


@over_reductions
def test_a_controlnet_pipeline_reduces_both_models(reduction: Any):
    pipe = tiny_pipeline(unet=small_unet(), kind=StableDiffusionControlNetPipeline, controlnet=controlnet())
    image = noise(1, 3, 32, 40).sigmoid()
    dense = picture(pipe, image=image)
    patch = todome.apply(pipe, reduction)
    reduced = picture(pipe, image=image)
    assert [level.layers for level in patch.levels] == [3 + 1, 4 + 2]
    assert not torch.allclose(reduced, dense, atol=1e-4)
    assert torch.equal(picture(pipe, image=image), reduced)
    patch.remove()
    assert torch.equal(picture(pipe, image=image), dense)
