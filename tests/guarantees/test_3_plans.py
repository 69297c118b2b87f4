"""Guarantee 3 for plans: each layer has the keys that the plan says, before and after the switch; no other one has."""

import copy
import math
from typing import Any

import pytest
import torch
from diffusers import ControlNetModel, StableDiffusionControlNetPipeline
from ldm.modules.diffusionmodules.openaimodel import UNetModel
from promises import (
    among,
    assert_copy_stands_alone,
    assert_same_run,
    gradients,
    over_blocks,
    over_zoo,
    pickled,
    steps_of,
)
from torch import Tensor
from versions import MultiControlNetModel, needs_hooks_in_graphs, needs_kept_notes
from zoo import (
    WIDTH,
    Host,
    controlnet,
    host_named,
    image_keys,
    lively,
    mini_unet,
    plan_for_all,
    plan_of,
    planned,
    small_unet,
    tiny_pipeline,
    unet_inputs,
)

import todome
from todome import Downsample, Plan
from todome.hosts import find_layers
from todome.patch import denoisers
from todome.tools.measuring.subjects import ARCHITECTURES

FALLING = {"factor": 2, "later": 1.5}


def layers_of(target: Any) -> list[Any]:
    return [layer for model in denoisers(target) for layer in find_layers(model)]


def plan_for(host: Host, target: Any, only: str | None = None, **options: Any) -> Plan:
    """A plan with the same factors for every layer, or for one and none for the others."""
    factors = {name: options.pop(name) for name in ("factor", "later", "switch") if name in options}
    layers = {}
    for layer in layers_of(target):
        own = {"factor": 2} | factors if only in (None, layer.name) else {"factor": 1}
        layers[layer.name] = planned(**own, tokens=math.prod(host.grids[layer.level - 1]), width=layer.width)
    return plan_of(layers, **options)


def output(host: Host, target: Any, reduction: Any, step: int = 3) -> Tensor:
    with todome.apply(target, reduction) as patch:
        patch.at(step, 10)
        return host.run(target)


@over_zoo
def test_one_factor_everywhere_is_what_downsample_does(host: Host):
    target, factor = host.build(), 2 if host.name == "sd1" else 1.5
    names = [layer.name for layer in layers_of(target)]
    assert len({*names}) == len(names)
    expected = output(host, target, Downsample((factor,) * host.levels))
    assert torch.equal(output(host, target, plan_for(host, target, factor=factor)), expected)


@over_blocks
def test_a_plan_for_one_layer_takes_keys_from_that_one_alone(host: Host):
    target = host.build()
    dense = image_keys(host, target)
    modules = {id(module): name for model in denoisers(target) for name, module in model.named_modules()}
    for layer in layers_of(target):
        with todome.apply(target, plan_for(host, target, only=layer.name)):
            seen = image_keys(host, target)
        assert {name for name, keys in seen.items() if keys < dense[name]} == {modules[id(layer.attention)]}


@over_blocks
def test_before_and_after_the_switch_it_is_what_flat_plans_are(host: Host):
    target = host.build()
    falling = plan_for(host, target, switch=0.5, **FALLING)
    first, second = (plan_for(host, target, factor=FALLING[name]) for name in ("factor", "later"))
    for step, flat, other in [(4, first, second), (5, second, first)]:
        ours = output(host, target, falling, step)
        assert torch.equal(ours, output(host, target, flat, step)), step
        assert not torch.equal(ours, output(host, target, other, step)), step


@pytest.mark.parametrize("copied", [copy.deepcopy, pytest.param(pickled, marks=pytest.mark.thorough)])
@among("sd1", "svd", "ldm1-wrapped")
def test_a_copy_keeps_the_plan_and_stands_alone(host: Host, copied: Any):
    target = host.build()
    assert_copy_stands_alone(host, target, plan_for(host, target, switch=0.5, **FALLING), copied)


@needs_kept_notes
def test_checkpoints_compute_again_with_the_factors_of_their_own_call():
    """Two calls, one before the switch and one after it, and then one backward pass."""
    found = []
    for checkpointing in (False, True):
        host = host_named("sd1")
        model: Any = host.build()
        if checkpointing:
            model.enable_gradient_checkpointing()
        patch, steps = todome.apply(model, plan_for(host, model, switch=0.5, factor=2, later=1)), iter([4, 5])
        model.register_forward_pre_hook(lambda *_, patch=patch, steps=steps: patch.at(next(steps), 10), prepend=True)
        found.append(gradients(model, [host.inputs(), host.inputs()]))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.usefixtures("fresh_dynamo")
@needs_hooks_in_graphs
def test_a_compiled_run_is_a_graph_for_each_part(tracer: Any):
    """One before the switch, one after it, and one when the plan is over."""
    host = Host("mini", mini_unet, unet_inputs, ((16, 18),))
    model, plain = host.build(), host.build()
    plan = plan_for(host, model, switch=0.4, stop=0.8, **FALLING)
    compiled = torch.compile(model, fullgraph=True, backend=tracer)
    outputs, expected = (steps_of(one, todome.apply(given, plan)) for one, given in [(compiled, model), (plain, plain)])
    assert tracer.frame_count == 3
    assert_same_run(outputs, expected)


@among("sd1")
def test_a_plan_is_printed_for_people(host: Host):
    target = host.build()
    patch = todome.apply(target, plan_for(host, target, only="up.1.1", switch=0.5, factor=4, later=2, stop=0.9))
    patch.at(0, 10)
    host.run(target)
    assert str(patch).splitlines() == [
        "Plan: 1 of 10 layers reduced on UNet2DConditionModel",
        "  from 0% to 90% of the steps",
        "  level 1, 3 layers: factor 1, 1, 4 (from 50% on 1, 1, 2), 16x18 = 288 -> 197 keys on average",
        "  level 2, 3 layers: factor 1, 8x9 = 72 -> 72 keys",
        "  level 3, 3 layers: factor 1, 4x5 = 20 -> 20 keys",
        "  level 4, 1 layer: factor 1, 2x3 = 6 -> 6 keys",
    ]


def test_a_controlnet_has_the_factors_of_the_layers_that_it_was_copied_from():
    """Though it was not there when the plan was made."""
    pipe = tiny_pipeline(unet=small_unet(), kind=StableDiffusionControlNetPipeline, controlnet=controlnet())
    layers = {layer.name: planned(1, 64, layer.width) for layer in find_layers(pipe.unet)}
    plan = plan_of(layers | {"down.2.0": planned(2, 16, layers["down.2.0"].width)})
    assert str(todome.apply(pipe, plan)).splitlines() == [
        "Plan: 1 of 7 layers reduced on UNet2DConditionModel and ControlNetModel",
        "  level 1, 4 layers: factor 1, not called yet",
        "  level 2, 6 layers: factor 2, 1, 1, 1, 2, 1, not called yet",
    ]


def a_controlnet(**blocks: Any) -> ControlNetModel:
    sizes: Any = {"layers_per_block": 1, "norm_num_groups": 4, "attention_head_dim": 2, "cross_attention_dim": WIDTH}
    return lively(lambda: ControlNetModel(**sizes, **blocks, conditioning_embedding_out_channels=(8, 8)))


def test_each_of_two_controlnets_has_its_layers():
    nets = MultiControlNetModel([controlnet(), controlnet()])
    pipe = tiny_pipeline(unet=small_unet(), kind=StableDiffusionControlNetPipeline, controlnet=nets)
    plan = plan_for_all(find_layers(pipe.unet))
    with todome.apply(pipe, plan) as patch:
        assert sum(level.layers for level in patch.levels) == len(plan.layers) + 2 * len(find_layers(controlnet()))


def test_a_controlnet_with_attention_further_down_has_the_levels_of_the_unet():
    """As SDXL's small ones have it."""
    net = a_controlnet(down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), block_out_channels=(8, 16))
    pipe = tiny_pipeline(unet=small_unet(), kind=StableDiffusionControlNetPipeline, controlnet=net)
    plan = plan_for_all(find_layers(pipe.unet))
    with todome.apply(pipe, plan):
        pass
    with todome.apply(pipe, Downsample(2)) as patch:
        assert [level.layers for level in patch.levels] == [3, 4 + 2]


def test_a_controlnet_that_a_plan_does_not_fit_stays_dense_and_is_named():
    wider = a_controlnet(down_block_types=("CrossAttnDownBlock2D",) * 2, block_out_channels=(8, 32))
    pipe = tiny_pipeline(unet=small_unet(), kind=StableDiffusionControlNetPipeline, controlnet=wider)
    plan = plan_for_all(find_layers(pipe.unet))
    with pytest.warns(UserWarning, match="ControlNetModel"):
        todome.apply(pipe, plan)
    assert not hooks_on_attention(pipe.controlnet)
    assert hooks_on_attention(pipe.unet)


def hooks_on_attention(model: Any) -> bool:
    return any(part._forward_pre_hooks for name, part in model.named_modules() if name.endswith("attn1"))


def test_models_of_two_libraries_have_the_same_layers():
    """So that a plan made with one of them serves in the other."""
    from diffusers import UNet2DConditionModel

    ldm: dict[str, Any] = {"image_size": 32, "in_channels": 4, "out_channels": 4, "model_channels": 320}
    ldm |= {"num_res_blocks": 2, "channel_mult": [1, 2, 4, 4], "num_heads": 8, "context_dim": 768, "legacy": False}
    ldm |= {"attention_resolutions": [4, 2, 1], "use_spatial_transformer": True, "use_checkpoint": False}
    with torch.device("meta"):
        models = UNet2DConditionModel(**ARCHITECTURES["sd15"]), UNetModel(**ldm)
    ours, theirs = ({layer.name: layer.width for layer in find_layers(model)} for model in models)
    assert ours == theirs
    assert len(ours) == 16
    assert ours["up.1.2"] == (320, 768)
