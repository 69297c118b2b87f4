"""The nodes in a real ComfyUI: a KSampler on a tiny random model, dense and through the node."""

import copy
import json
import pickle
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from comfy_host import NODES, WORDS, inputs_of, run_node, sampled, scheduled, tiny_model, watched
from torch import nn
from zoo import plan_of, planned, small_unet

import todome
from todome.hosts import find_layers
from todome.hosts.comfy import AttentionPatch, patched

SCHEDULE = [14.6, 6.0, 2.0, 0.5, 0.0]
LINES = [
    "level 1, 3 layers: factor 2.0, 16x18 = 288 -> 72 keys",
    "level 2, 4 layers: factor 2.0, 8x9 = 72 -> 16 keys",
]


@pytest.fixture(scope="module")
def model(comfy):
    """Whoever uses it leaves it as it was."""
    return tiny_model(comfy)


@pytest.fixture(scope="module")
def dense(comfy, model):
    return sampled(comfy, model)


@pytest.fixture
def downsampled(nodes):
    return lambda model, **settings: run_node(nodes, "TodomeTokenDownsampling", model, **settings)


@pytest.fixture
def merged(nodes):
    return lambda model, **settings: run_node(nodes, "TodomeTokenMerging", model, **settings)


BOTH = {"factor": "per level", "factor_level_1": 2.0, "factor_level_2": 2.0}
FIRST = {"factor": "per level"}


def test_every_input_is_explained(nodes):
    assert nodes.NODE_CLASS_MAPPINGS.keys() == nodes.NODE_DISPLAY_NAME_MAPPINGS.keys()
    for node in nodes.NODE_CLASS_MAPPINGS.values():
        assert node.DESCRIPTION
        assert all(options["tooltip"] for _, options in inputs_of(node).values())


@pytest.mark.parametrize(
    "settings",
    [{}, {**FIRST, "factor_level_1": 1.0}, {**BOTH, "stop_percent": 0.0}],
    ids=["auto at a small size", "factor 1", "stop 0"],
)
def test_off_is_the_dense_picture(comfy, model, dense, downsampled, settings):
    assert torch.equal(sampled(comfy, downsampled(model, **settings)), dense)


def test_pictures_differ_and_come_back_and_the_model_that_came_in_is_untouched(comfy, model, dense, downsampled):
    reduced = downsampled(model, **BOTH)
    first = sampled(comfy, reduced)
    assert not torch.equal(first, dense)
    for same in (reduced, reduced.clone(), downsampled(model, **BOTH)):
        assert torch.equal(sampled(comfy, same), first)
    options = reduced.model_options["transformer_options"]
    assert isinstance(pickle.loads(pickle.dumps(options["patches"]["attn1_patch"][0])).__self__, AttentionPatch)
    assert reduced is not model
    assert reduced.model is model.model
    assert model.model_options == {"transformer_options": {}}
    assert torch.equal(sampled(comfy, model), dense)


@pytest.mark.parametrize(
    ("depths", "settings", "size", "expected"),
    [
        ((1, 1), BOTH, (33, 37), {(33 * 37, 16 * 18), (17 * 19, 8 * 9)}),
        ((1, 1), {**FIRST, "factor_level_2": 1.5}, (16, 18), {(16 * 18, 8 * 9), (8 * 9, 4 * 6)}),
        ((0, 2), FIRST, (33, 37), {(17 * 19, 8 * 9)}),  # level 1 is the first with attention
    ],
)
def test_every_query_stays_and_keys_drop(comfy, downsampled, depths, settings, size, expected):
    model = tiny_model(comfy, depths)
    with watched(model) as calls:
        sampled(comfy, downsampled(model, **settings), size, steps=1)
    assert set(calls) == expected


def test_merging(comfy, model, dense, merged):
    reduced = merged(model, ratio_level_1=0.5, ratio_level_2=0.25)
    with watched(model) as calls:
        first = sampled(comfy, reduced)
    assert set(calls) == {(144, 144), (54, 54)}
    assert torch.equal(first, sampled(comfy, reduced))
    assert not torch.equal(first, dense)
    assert torch.equal(sampled(comfy, merged(model, ratio_level_1=0.0)), dense)


def test_the_window_of_a_host_without_schedule(comfy, model, downsampled):
    """The noise of 4 steps of "normal" lies at 0, 1/3, 2/3 and 3/3 of the model's own percent."""
    with watched(model) as calls:
        sampled(comfy, downsampled(model, **FIRST, start_percent=0.2, stop_percent=0.8))
    per_call = calls[:: len(calls) // 4]
    assert [keys for _, keys in per_call] == [288, 72, 72, 288]


@pytest.mark.parametrize("sampler", ["euler", "dpm_2"])  # of first and of second order
def test_the_window_is_a_share_of_the_steps_where_the_schedule_is_told(comfy, model, downsampled, sampler):
    """ComfyUI of 2025 puts the schedule into the options; this one passes on what is there."""
    reduced = downsampled(model, **FIRST, start_percent=0.25, stop_percent=0.5)
    reduced.model_options["transformer_options"]["sample_sigmas"] = scheduled(comfy, model, sampler)
    with watched(model) as calls:
        sampled(comfy, reduced, sampler=sampler)
    keys = [keys for _, keys in calls[::7]]  # of the first layer
    assert keys == {"euler": [288, 72, 288, 288], "dpm_2": [288, 288, 72, 72, 288, 288, 288]}[sampler]


def test_the_last_node_counts(comfy, model, dense, downsampled, merged):
    several = merged(downsampled(model, **BOTH), ratio_level_1=0.5)
    assert torch.equal(sampled(comfy, several), sampled(comfy, merged(model, ratio_level_1=0.5)))
    off = downsampled(several, **FIRST, factor_level_1=1.0)
    assert torch.equal(sampled(comfy, off), dense)


def test_the_patches_of_others_stay(model, downsampled):
    others = model.clone()
    others.set_model_attn1_patch(len)
    again = downsampled(downsampled(others, **BOTH), **BOTH)
    patches = again.model_options["transformer_options"]["patches"]
    assert patches["attn1_patch"][0] is len
    assert len(patches["attn1_patch"]) == 2


def test_it_says_once_per_run_what_was_reduced(comfy, model, downsampled, capsys):
    reduced = downsampled(model, **BOTH)
    sampled(comfy, reduced)
    said = capsys.readouterr().out
    assert said.splitlines() == [f"todome: {line}" for line in LINES]
    sampled(comfy, reduced)
    assert capsys.readouterr().out == said


def test_the_node_shows_it_too(comfy, model, downsampled, monkeypatch):
    shown = []
    instance = SimpleNamespace(send_progress_text=lambda text, node: shown.append((text, node)))
    server = SimpleNamespace(PromptServer=SimpleNamespace(instance=instance))
    monkeypatch.setitem(sys.modules, "server", server)
    sampled(comfy, downsampled(model, **BOTH, node_id="7"), steps=1)
    assert shown == [(LINES[0], "7"), ("\n".join(LINES), "7")]
    shown.clear()
    sampled(comfy, downsampled(model, node_id="8"), steps=1)
    text, node = shown[0]
    assert text.startswith("level 1, 3 layers: factor auto, 16x18 = 288 -> 288 keys: nothing is reduced at this size.")
    assert node == "8"


@torch.no_grad()
def test_the_patch_does_what_the_hooks_do(model):
    """The same layers, seeds and rows as todome.apply, step by step."""
    unet, lever = copy.deepcopy(model.model.diffusion_model), todome.Downsample((2, 2))
    x = torch.randn(2, 4, 17, 19, generator=torch.Generator().manual_seed(0))
    given = {"timesteps": torch.tensor([500.0, 500.0]), "context": torch.ones(2, 7, WORDS)}
    patch: Any = AttentionPatch(lever, unet, print)
    patches = {"attn1_patch": [patch.before], "attn1_output_patch": [patch.after]}
    for step, sigma in enumerate(SCHEDULE[:-1]):
        options = {"patches": patches, "sigmas": torch.tensor([sigma]), "sample_sigmas": torch.tensor(SCHEDULE)}
        by_patch = unet(x, **given, transformer_options=options)
        with todome.apply(unet, lever) as hooks:
            hooks.at(step, 4)
            assert torch.equal(by_patch, unet(x, **given))


class Flux(nn.Module):
    """Any model without BasicTransformerBlocks."""


def test_other_models_are_refused(model, downsampled):
    sampling = model.model.model_sampling
    other = SimpleNamespace(object_patches={}, model=SimpleNamespace(diffusion_model=Flux(), model_sampling=sampling))
    with pytest.raises(todome.NothingToReduce, match=r"^model='Flux' cannot be used. Allowed: SD 1.x, .* transformer"):
        downsampled(other)


@pytest.mark.parametrize(
    "path", sorted((NODES / "example_workflows" / "api").glob("*.json")), ids=lambda path: path.stem
)
def test_workflows_use_the_nodes_as_they_are(nodes, path):
    workflow = json.loads(path.read_text())
    ours = [node for node in workflow.values() if node["class_type"] in nodes.NODE_CLASS_MAPPINGS]
    assert ours
    for node in ours:
        assert node["inputs"].keys() == inputs_of(nodes.NODE_CLASS_MAPPINGS[node["class_type"]]).keys()
    links = [value for node in workflow.values() for value in node["inputs"].values() if isinstance(value, list)]
    assert all(source in workflow for source, _ in links)


def test_a_plan_serves_here_as_in_diffusers(comfy, model):
    """The layers have the names that they have there."""
    layers = {layer.name: layer for layer in find_layers(model.model.diffusion_model)}
    assert layers.keys() == {layer.name for layer in find_layers(small_unet())}
    tokens, told = {1: 16 * 18, 2: 8 * 9}, []
    found = {name: planned(1, tokens[layer.level], layer.width) for name, layer in layers.items()}
    found["up.1.0"] = planned(4, tokens[1], layers["up.1.0"].width, later=2, switch=0.5)
    plan, sigma_at = plan_of(found), {0.5: scheduled(comfy, model, "euler")[2].item()}.__getitem__
    with watched(model) as calls:
        sampled(comfy, patched(model, plan, told.append, sigma_at))
    assert [keys for tokens, keys in calls if keys < tokens] == [16, 16, 72, 72]
    assert [level.setting for level in told if level.level == 1] == ["1, 4, 1 (from 50% on 1, 2, 1)"]
    with pytest.raises(RuntimeError, match=re.escape("until=(0.5, 1.0) cannot be used")):
        sampled(comfy, patched(model, plan, told.append), steps=1)
