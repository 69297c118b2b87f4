"""Whom todome must get on with inside a model, and the two orders in which they meet."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from accelerate import cpu_offload
from diffusers.models.attention_processor import AttnProcessor2_0, PAGIdentitySelfAttnProcessor2_0
from peft import LoraConfig
from torch import Tensor, nn
from zoo import WIDTH, controlnet, host_named, lively, noise, run, small_unet, unet_inputs

import todome
from todome import Downsample, Merge

PERTURBED = "mid_block.attentions.0.transformer_blocks.0.attn1"  # by PAG
MERGE = Merge(ratio=(0.5, 0.5), cross_attention=True, feed_forward=True)
REDUCTIONS = [
    pytest.param(Downsample(factor=(2, 2)), id="downsample"),
    pytest.param(MERGE, id="merge", marks=pytest.mark.thorough),
]
over_reductions = pytest.mark.parametrize("reduction", REDUCTIONS)


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


def with_group_offload(unet: Any) -> None:
    cpu = torch.device("cpu")
    hooks = pytest.importorskip("diffusers.hooks", reason="this diffusers has no offloading by groups")
    hooks.apply_group_offloading(unet, onload_device=cpu, offload_device=cpu, offload_type="leaf_level")


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
    join: Callable[[Any], object]
    inputs: Callable[[], dict[str, Any]] = dict
    changes_output: bool = True

    def run(self, unet: Any) -> Tensor:
        return run(unet, **unet_inputs(), **self.inputs())


NEIGHBOURS = [
    Neighbour("lora", with_lora),
    Neighbour("fused-lora", with_fused_lora),
    Neighbour("ip-adapter", with_ip_adapter, lambda: {"added_cond_kwargs": {"image_embeds": [noise(2, 1, WIDTH)]}}),
    Neighbour("controlnet", nothing, residuals),
    Neighbour("processor", lambda unet: unet.set_attn_processor(Halving())),
    Neighbour("slicing", lambda unet: unet.set_attention_slice(1), changes_output=False),
    Neighbour("freeu", lambda unet: unet.enable_freeu(s1=0.9, s2=0.2, b1=1.5, b2=1.6)),
    Neighbour("pag", lambda unet: unet.get_submodule(PERTURBED).set_processor(PAGIdentitySelfAttnProcessor2_0())),
    Neighbour("group-offload", with_group_offload, changes_output=False),
    Neighbour("model-offload", lambda unet: cpu_offload(unet, torch.device("cpu")), changes_output=False),
    Neighbour("checkpointing", lambda unet: unet.enable_gradient_checkpointing(), changes_output=False),
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
