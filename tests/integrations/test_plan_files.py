"""The file of a plan in the settings of the user interfaces: AUTOMATIC1111's webui, Forge and ComfyUI."""

import re
from pathlib import Path
from typing import Any

import pytest
from comfy_host import run_node, sampled, tiny_model, watched
from webui_world import WebUI

from todome import Plan
from todome.hosts import find_layers
from todome.plan import PlannedLayer

LEVELS = {1: 64, 2: 16}  # tokens in the webui's pictures


def saved_plan(model: Any, path: Path, tokens: dict[int, int], factor: float = 4, later: float = 2) -> Path:
    layers = {
        layer.name: PlannedLayer(*((factor, later) if layer.level == 1 else (1, 1)), tokens[layer.level], layer.width)
        for layer in find_layers(model)
    }
    measured = {"psnr": 44.1, "speedup": 1.25, "size": [64, 64], "device": "a CPU"}
    Plan(layers, switch=0.5, measured=measured).save(path)
    return path


@pytest.fixture
def plan(webui: WebUI, tmp_path: Path) -> Path:
    return saved_plan(webui.unet, tmp_path / "plan.json", LEVELS)


def test_the_layers_keep_what_the_plan_says(either: WebUI, tmp_path: Path):
    either.set(plan=f" {saved_plan(either.unet, tmp_path / 'plan.json', LEVELS)} ")
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
    Plan({**found.layers, name: found.layers[name]._replace(width=(999, 8))}).save(plan)
    webui.set(plan=str(plan))
    with pytest.raises(ValueError, match=rf"This plan is for another model: .* {re.escape(name)} are \(999, 8\)"):
        webui.processing.process_images(webui.generation())


def test_the_accordion_says_what_was_measured_or_what_is_wrong(webui: WebUI, plan: Path, tmp_path: Path):
    script = webui.tabs["txt2img"].alwayson_scripts[-1]
    webui.set(plan=str(plan))
    said = script.expect(512, 512, False)
    assert "44.1 dB to dense, 1.25x as fast. Measured at 64 x 64 on a CPU." in said
    webui.set(plan=str(tmp_path / "<b>.json"))
    assert "&lt;b&gt;.json is not a plan: it cannot be read" in script.expect(512, 512, False)


def test_a_dense_plan_says_why_nothing_was_reduced(webui: WebUI, plan: Path, capsys: Any):
    saved_plan(webui.unet, plan, LEVELS, 1, 1)
    webui.set(plan=str(plan))
    webui.draw()
    assert "nothing was reduced. The plan leaves every layer dense" in capsys.readouterr().out


def test_the_node_of_comfyui_takes_a_plan_of_its_model_alone(comfy: Any, nodes: Any, tmp_path: Path):
    model, path = tiny_model(comfy), tmp_path / "plan.json"
    saved_plan(model.model.diffusion_model, path, {1: 16 * 18, 2: 8 * 9})
    with watched(model) as calls:
        sampled(comfy, run_node(nodes, "TodomeTokenDownsampling", model, plan_file=str(path)))
    assert [*dict.fromkeys(now for queries, now in calls if now < queries)] == [16, 72]
    Plan({"up.1.0": PlannedLayer(2, 2, 64, (8, 8))}).save(path)
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
