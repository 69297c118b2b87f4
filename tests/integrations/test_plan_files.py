"""The file of a plan in the settings of the user interfaces: AUTOMATIC1111's webui, Forge and ComfyUI."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from comfy_host import run_node, sampled, tiny_model, watched
from webui_world import WebUI
from zoo import plan_of, planned

from todome import Plan
from todome.hosts import find_layers

Save = Callable[[Any, Path, dict[int, int]], Path]
FOUND = {"psnr": 44.1, "speedup": 1.25, "device": "a CPU"}
LEVELS = {1: 64, 2: 16}  # tokens in the webui's pictures


def saved_plan(model: Any, path: Path, tokens: dict[int, int], factor: Any = 4, later: Any = 2, rest: Any = 1) -> Path:
    """A plan with these factors on level 1, of which the second holds in the second half, and one for the rest."""
    layers = {}
    for layer in find_layers(model):
        factors = (factor, later) if layer.level == 1 else (rest, rest)
        layers[layer.name] = planned(factors[0], tokens[layer.level], layer.width, factors[1])
    plan_of(layers, {"size": [64, 64]}, FOUND).save(path)
    return path


def saved_in_schema_1(model: Any, path: Path, tokens: dict[int, int]) -> Path:
    """The same plan in a file of before."""
    layers = {}
    for layer in find_layers(model):
        factors = {"factor": 4.0, "later": 2.0} if layer.level == 1 else {"factor": 1.0, "later": 1.0}
        layers[layer.name] = {**factors, "tokens": tokens[layer.level], "width": layer.width}
    own = {"switch": 0.5, "start": 0.0, "stop": 1.0, "seed": 0}
    measured = {**FOUND, "size": [64, 64]}
    path.write_text(json.dumps({"todome_plan": 1, **own, "layers": layers, "measured": measured}))
    return path


both_schemas = pytest.mark.parametrize("save", [saved_plan, saved_in_schema_1])


@pytest.fixture
def plan(webui: WebUI, tmp_path: Path) -> Path:
    return saved_plan(webui.unet, tmp_path / "plan.json", LEVELS)


@both_schemas
def test_the_layers_keep_what_the_plan_says(either: WebUI, tmp_path: Path, save: Save):
    either.set(plan=f" {save(either.unet, tmp_path / 'plan.json', LEVELS)} ")
    assert either.counts() == [4] * 2 + [16] * 2


def test_its_window_and_the_factors_of_other_passes_hold(webui: WebUI, plan: Path):
    webui.set(plan=str(plan), disable_after=0.75, factor_img2img="2")
    assert webui.counts() == [4] * 2 + [16] + [64]
    assert webui.counts("img2img") == [16] * 3


def test_infotext_names_it_and_is_pasted_back(webui: WebUI, plan: Path):
    webui.set(plan=str(plan), factor=3.0)
    drawn = webui.draw()
    assert f"ToDo plan: {plan}" in drawn.infotext
    assert "ToDo factor" not in drawn.infotext
    webui.set(plan="", factor=1.0)
    webui.infotext_utils.paste(drawn.infotext, webui.tabs["txt2img"].infotext_fields)
    assert webui.draw().infotext == drawn.infotext


def test_no_plan_and_one_of_another_model_end_the_generation(webui: WebUI, plan: Path, tmp_path: Path):
    webui.set(plan=str(tmp_path / "none.json"))
    with pytest.raises(ValueError, match=r"none\.json is not a plan: it cannot be read .*No such file"):
        webui.processing.process_images(webui.generation())
    found = Plan.load(plan)
    name = next(iter(found.layers))
    plan_of({**found.layers, name: found.layers[name]._replace(width=(999, 8))}).save(plan)
    webui.set(plan=str(plan))
    with pytest.raises(ValueError, match=rf"This plan is for another model: .* {re.escape(name)} are \(999, 8\)"):
        webui.processing.process_images(webui.generation())


@both_schemas
def test_the_accordion_says_what_was_measured_or_what_is_wrong(webui: WebUI, tmp_path: Path, save: Save):
    script = webui.tabs["txt2img"].alwayson_scripts[-1]
    webui.set(plan=str(save(webui.unet, tmp_path / "plan.json", LEVELS)))
    said = script.expect(512, 512, False)
    assert "44.1 dB to dense, 1.25x as fast. Measured at 64 x 64 on a CPU." in said
    webui.set(plan=str(tmp_path / "<b>.json"))
    assert "&lt;b&gt;.json is not a plan: it cannot be read" in script.expect(512, 512, False)


@pytest.mark.parametrize("factor", [1, None])
def test_a_dense_plan_says_why_nothing_was_reduced(either: WebUI, tmp_path: Path, factor: Any, capsys: Any):
    either.set(plan=str(saved_plan(either.unet, tmp_path / "plan.json", LEVELS, factor, factor, factor)))
    either.draw()
    assert "nothing was reduced. The plan leaves every layer dense" in capsys.readouterr().out


@both_schemas
def test_the_node_of_comfyui_takes_a_plan_of_its_model_alone(comfy: Any, nodes: Any, tmp_path: Path, save: Save):
    model, path = tiny_model(comfy), tmp_path / "plan.json"
    save(model.model.diffusion_model, path, {1: 16 * 18, 2: 8 * 9})
    with watched(model) as calls:
        window = {"start_percent": 0.2, "stop_percent": 0.8}
        sampled(comfy, run_node(nodes, "TodomeTokenDownsampling", model, plan_file=str(path), **window))
    assert [kept for _, kept in calls[:: len(calls) // 4]] == [288, 16, 72, 288]
    assert {kept for queries, kept in calls if queries == 72} == {72}
    plan_of({"up.1.0": planned(2, 64, (8, 8))}).save(path)
    for file, said in [(path, "This plan is for another model: it has 1 layers"), (tmp_path, "is not a plan: it")]:
        with pytest.raises(ValueError, match=said):
            run_node(nodes, "TodomeTokenDownsampling", model, plan_file=str(file))


def test_a_changed_file_runs_the_node_of_comfyui_again(nodes: Any, tmp_path: Path):
    node, path = nodes.NODE_CLASS_MAPPINGS["TodomeTokenDownsampling"], tmp_path / "plan.json"
    assert node.IS_CHANGED(plan_file=str(path), model=None) == node.IS_CHANGED(model=None) == ""
    path.write_text("one")
    first = node.IS_CHANGED(plan_file=str(path))
    path.write_text("two")
    assert node.IS_CHANGED(plan_file=str(path)) != first
