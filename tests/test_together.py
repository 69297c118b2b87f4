"""Guarantee 8: todome gets on with its neighbours, whoever came first."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from accelerate import cpu_offload
from DeepCache import DeepCacheSDHelper
from diffusers import StableDiffusionControlNetPipeline, StableDiffusionPAGPipeline
from diffusers.hooks import apply_group_offloading
from diffusers.models.attention_processor import AttnProcessor2_0, PAGIdentitySelfAttnProcessor2_0
from peft import LoraConfig
from torch import Tensor, nn
from zoo import (
    WIDTH,
    controlnet,
    host_named,
    image_keys,
    lively,
    mini_unet,
    noise,
    picture,
    recorded,
    run,
    small_unet,
    tiny_pipeline,
    unet_inputs,
)

import todome
from todome import Downsample, Merge

MERGE = Merge(ratio=(0.5, 0.5), cross_attention=True, feed_forward=True)
over_reductions = pytest.mark.parametrize("reduction", [Downsample(factor=(2, 2)), MERGE], ids=["downsample", "merge"])
both = pytest.mark.parametrize("kind", [Downsample, Merge])


# ----------------------------------------------------------------------------------------- neighbours inside the model


def nothing(unet: Any) -> None:
    pass


def with_lora(unet: Any) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        unet.add_adapter(LoraConfig(r=2, target_modules=["to_q", "to_k", "to_v"], init_lora_weights=False))


def with_fused_lora(unet: Any) -> None:
    with_lora(unet)
    unet.fuse_lora()


def with_ip_adapter(unet: Any) -> None:
    """Random weights in the form of the published files: odd numbers are the cross-attentions, in their order."""
    cross = [name for name in unet.attn_processors if "attn2" in name]
    widths = [unet.get_submodule(name.removesuffix(".processor")).to_q.out_features for name in cross]
    weights = {
        f"{2 * i + 1}.to_{part}_ip.weight": noise(width, WIDTH, seed=i)
        for i, width in enumerate(widths)
        for part in "kv"
    }
    image = lively(
        lambda: nn.ModuleDict({"proj": nn.Linear(WIDTH, 4 * WIDTH), "norm": nn.LayerNorm(WIDTH)})
    ).state_dict()
    unet._load_ip_adapter_weights({"ip_adapter": weights, "image_proj": image})


class Halving(AttnProcessor2_0):
    """A processor of a user's own."""

    def __call__(self, attn: Any, *args: Any, **kwargs: Any) -> Tensor:
        return super().__call__(attn, *args, **kwargs) / 2


def with_processor(unet: Any) -> None:
    unet.set_attn_processor(Halving())


def with_slicing(unet: Any) -> None:
    unet.set_attention_slice(1)


def with_freeu(unet: Any) -> None:
    unet.enable_freeu(s1=0.9, s2=0.2, b1=1.5, b2=1.6)


def with_pag(unet: Any) -> None:
    unet.mid_block.attentions[0].transformer_blocks[0].attn1.set_processor(PAGIdentitySelfAttnProcessor2_0())


def with_group_offload(unet: Any) -> None:
    cpu = torch.device("cpu")
    apply_group_offloading(unet, onload_device=cpu, offload_device=cpu, offload_type="leaf_level")


def with_model_offload(unet: Any) -> None:
    cpu_offload(unet, execution_device=torch.device("cpu"))


def with_checkpointing(unet: Any) -> None:
    unet.enable_gradient_checkpointing()


def chunked(dim: int, size: int) -> Callable[[Any], None]:
    """Feed-forward in pieces. UNet2DConditionModel has no method for it, but its blocks do."""

    def join(unet: Any) -> None:
        for block in unet.modules():
            if hasattr(block, "set_chunk_feed_forward"):
                block.set_chunk_feed_forward(size, dim)

    return join


def residuals() -> dict[str, Any]:
    """What a ControlNet adds to the blocks of a UNet."""
    with torch.no_grad():
        down, middle = controlnet()(**host_named("controlnet").inputs(), return_dict=False)
    return {"down_block_additional_residuals": down, "mid_block_additional_residual": middle}


@dataclass(frozen=True)
class Neighbour:
    name: str
    join: Callable[[Any], None]
    inputs: Callable[[], dict[str, Any]] = dict
    changes_output: bool = True

    def run(self, unet: Any) -> Tensor:
        return run(unet, **unet_inputs(), **self.inputs())


NEIGHBOURS = [
    Neighbour("lora", with_lora),
    Neighbour("fused-lora", with_fused_lora),
    Neighbour("ip-adapter", with_ip_adapter, lambda: {"added_cond_kwargs": {"image_embeds": [noise(2, 1, WIDTH)]}}),
    Neighbour("controlnet", nothing, residuals),
    Neighbour("processor", with_processor),
    Neighbour("slicing", with_slicing, changes_output=False),
    Neighbour("freeu", with_freeu),
    Neighbour("pag", with_pag),
    Neighbour("group-offload", with_group_offload, changes_output=False),
    Neighbour("model-offload", with_model_offload, changes_output=False),
    Neighbour("checkpointing", with_checkpointing, changes_output=False),
    Neighbour("chunked-tokens", chunked(1, 24), changes_output=False),
    Neighbour("chunked-batch", chunked(0, 1), changes_output=False),
]
over_neighbours = pytest.mark.parametrize("neighbour", NEIGHBOURS, ids=lambda neighbour: neighbour.name)


def neighbour_first(neighbour: Neighbour, reduction: Any) -> tuple[Any, todome.Patch]:
    unet = small_unet()
    neighbour.join(unet)
    return unet, todome.apply(unet, reduction)


def todome_first(neighbour: Neighbour, reduction: Any) -> tuple[Any, todome.Patch]:
    unet = small_unet()
    patch = todome.apply(unet, reduction)
    neighbour.join(unet)
    return unet, patch


def third_step(neighbour: Neighbour, unet: Any, patch: todome.Patch) -> Tensor:
    patch.at(3, 10)
    return neighbour.run(unet)


@over_reductions
@over_neighbours
def test_both_orders_give_the_same_output(neighbour: Neighbour, reduction: Any):
    first, second = (third_step(neighbour, *meet(neighbour, reduction)) for meet in (neighbour_first, todome_first))
    assert torch.equal(first, second)


@over_reductions
@over_neighbours
def test_neither_undoes_the_other(neighbour: Neighbour, reduction: Any):
    unet, patch = neighbour_first(neighbour, reduction)
    together = third_step(neighbour, unet, patch)
    patch.remove()
    assert not torch.allclose(together, neighbour.run(unet), atol=1e-4)
    plain = small_unet()
    patch = todome.apply(plain, reduction)
    patch.at(3, 10)
    todome_alone = run(plain, **unet_inputs())
    if neighbour.changes_output:
        assert not torch.allclose(together, todome_alone, atol=1e-4)
    elif not (neighbour.name.startswith("chunked") and reduction is MERGE):  # chunks are not merged
        torch.testing.assert_close(together, todome_alone, rtol=1e-4, atol=1e-5)


@over_reductions
@pytest.mark.parametrize("meet", [neighbour_first, todome_first])
@over_neighbours
def test_remove_leaves_the_neighbour_alone(neighbour: Neighbour, meet: Callable, reduction: Any):
    alone = small_unet()
    neighbour.join(alone)
    unet, patch = meet(neighbour, reduction)
    third_step(neighbour, unet, patch)
    patch.remove()
    assert torch.equal(neighbour.run(unet), neighbour.run(alone))


@both
@pytest.mark.parametrize("meet", [neighbour_first, todome_first])
def test_processors_are_kept(kind: type, meet: Callable):
    own = Halving()
    neighbour = Neighbour("own", lambda unet: unet.set_attn_processor(own))
    unet, patch = meet(neighbour, Downsample(factor=2) if kind is Downsample else Merge())
    third_step(neighbour, unet, patch)
    assert all(processor is own for processor in unet.attn_processors.values())
    patch.remove()
    assert all(processor is own for processor in unet.attn_processors.values())


@both
@pytest.mark.parametrize("meet", [neighbour_first, todome_first])
@pytest.mark.parametrize("neighbour", [n for n in NEIGHBOURS if n.name != "pag"], ids=lambda n: n.name)
def test_attention_stays_reduced(neighbour: Neighbour, meet: Callable, kind: type):
    unet, patch = meet(neighbour, Downsample(factor=(2, 2)) if kind is Downsample else Merge(ratio=(0.5, 0.5)))
    with recorded(unet, r"attn1\.to_k$") as seen:
        third_step(neighbour, unet, patch)
    assert {calls[0].shape[1] for calls in seen.values()} == ({72, 16} if kind is Downsample else {144, 36})


def test_a_perturbed_layer_of_pag_is_left_dense():
    """Its processor reads nothing but its input, whatever else it is handed."""
    unet, patch = todome_first(NEIGHBOURS[7], Downsample(factor=(1, 2)))
    patch.at(3, 10)
    middle = "mid_block.attentions.0.transformer_blocks.0.attn1"
    assert image_keys(host_named("sd2"), unet)[middle] == 72


def test_chunks_as_large_as_the_merged_sequence():
    """Chunks of tokens are not merged, and a chunk of 144 must not be taken for the 144 tokens left of 288."""
    outputs = []
    for size in (144, 96):
        unet = mini_unet()
        chunked(1, size)(unet)
        todome.apply(unet, Merge(feed_forward=True)).at(3, 10)
        outputs.append(run(unet, **unet_inputs()))
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)


# --------------------------------------------------------------------------------------------------- training together


@both
@pytest.mark.parametrize("meet", [neighbour_first, todome_first])
def test_lora_trains_with_gradient_checkpointing(meet: Callable, kind: type):
    def gradients(join: Callable[[Any], None]) -> list[Tensor]:
        unet, patch = meet(Neighbour("", join), Downsample(factor=2) if kind is Downsample else Merge())
        patch.at(3, 10)
        loss = unet(**unet_inputs()).sample.square().mean()
        return list(torch.autograd.grad(loss, [p for name, p in unet.named_parameters() if "lora" in name]))

    def with_both(unet: Any) -> None:
        with_lora(unet)
        unet.enable_gradient_checkpointing()

    torch.testing.assert_close(gradients(with_both), gradients(with_lora))


# --------------------------------------------------------------------------------------------- neighbours of pipelines


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
    offloaded = tiny_pipeline()
    offload(offloaded)
    todome.apply(offloaded, reduction)
    assert torch.equal(picture(offloaded), expected)


@over_reductions
def test_a_pag_pipeline(reduction: Any):
    """PAG puts its own processors in for the time of a call."""
    pipe = tiny_pipeline(StableDiffusionPAGPipeline, pag_applied_layers="mid")
    dense = picture(pipe, pag_scale=3.0)
    patch = todome.apply(pipe, reduction)
    reduced, unguided = picture(pipe, pag_scale=3.0), picture(pipe, pag_scale=0.0)
    assert not torch.allclose(reduced, dense, atol=1e-4)
    assert not torch.allclose(reduced, unguided, atol=1e-4)
    patch.remove()
    assert torch.equal(picture(pipe, pag_scale=3.0), dense)


@over_reductions
def test_a_controlnet_pipeline_reduces_both_models(reduction: Any):
    pipe = tiny_pipeline(StableDiffusionControlNetPipeline, controlnet=controlnet())
    image = noise(1, 3, 32, 40).sigmoid()
    dense = picture(pipe, image=image)
    patch = todome.apply(pipe, reduction)
    reduced = picture(pipe, image=image)
    assert [level.layers for level in patch.levels] == [3 + 1, 4 + 2]
    assert not torch.allclose(reduced, dense, atol=1e-4)
    assert torch.equal(picture(pipe, image=image), reduced)
    patch.remove()
    assert torch.equal(picture(pipe, image=image), dense)


# ----------------------------------------------------------------------------------------- what cannot work is refused

FUSED = "processor='FusedAttnProcessor2_0' cannot be used.*unfuse_qkv_projections"


def test_fused_projections_are_refused_by_apply():
    unet = small_unet()
    unet.fuse_qkv_projections()
    hooks = [dict(module._forward_pre_hooks) for module in unet.modules()]
    with pytest.raises(RuntimeError, match=FUSED):
        todome.apply(unet, Downsample(factor=2))
    assert [dict(module._forward_pre_hooks) for module in unet.modules()] == hooks
    unet.unfuse_qkv_projections()
    todome.apply(unet, Downsample(factor=2))


def test_projections_fused_after_apply_are_refused_by_the_call():
    unet = small_unet()
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
