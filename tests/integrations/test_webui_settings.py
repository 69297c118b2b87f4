"""What a user can set in AUTOMATIC1111's webui: settings, infotext, the accordion, and the axes of the XYZ plot."""

import copy
import importlib
from typing import Any

import torch
from webui_world import WebUI, expected_keys, own_modules
from zoo import recording

OLD = ("factor", "factor2", "disable_after")
FINE = (8, 8)


def test_the_older_extensions_settings(webui):
    labels = webui.shared.opts.data_labels
    known = {name: labels[f"token_downsampling_{name}"] for name in OLD}
    factor = {"minimum": 1.0, "maximum": 5.0, "step": 0.5}
    limits = [factor, factor, {"minimum": 0.0, "maximum": 1.0, "step": 0.1}]
    assert [info.component_args for info in known.values()] == limits
    assert [info.default for info in known.values()] == [1.0, 1.0, 1.0]
    assert [info.infotext for info in known.values()] == ["ToDo factor", "ToDo factor2", "ToDo disable after"]
    assert {info.section for info in labels.values()} == {("token_downsampling", "Token Downsampling (todome)")}
    assert all(info.comment_after for info in labels.values())


def test_saved_settings_of_the_older_extension_carry_over():
    with own_modules():
        importlib.import_module("modules.shared").opts.token_downsampling_factor = 2.0
        assert WebUI().counts() == [16] * 4


def test_infotext_is_pasted_back_into_the_accordion(webui):
    webui.set(factor=3.0, factor2=1.5, phase="fixed", factor_hr="off", disable_after=0.8)
    drawn = webui.draw(enable_hr=True)
    webui.set(factor=1.0, factor2=1.0, phase="dither", factor_hr="same", disable_after=1.0)
    overridden = webui.infotext_utils.paste(drawn.infotext, webui.tabs["txt2img"].infotext_fields)
    assert not overridden
    assert webui.control("Override the settings with these").value is True
    again = webui.draw(enable_hr=True)
    assert torch.equal(again.samples, drawn.samples)
    assert again.infotext == drawn.infotext


def test_infotext_of_the_older_extension(webui):
    webui.control("Token downsampling automatic factor").value = True
    webui.infotext_utils.paste("Steps: 4", webui.tabs["txt2img"].infotext_fields)
    assert webui.control("Override the settings with these").value is False  # by a dense picture
    old = "Steps: 4, ToDo factor: 2.0, ToDo factor2: 1.0, ToDo disable after: 0.5"
    webui.infotext_utils.paste(old, webui.tabs["txt2img"].infotext_fields)
    assert webui.counts() == [16] * 2 + [64] * 2


def test_the_accordion_overrides_the_settings(webui):
    webui.set(factor=4.0)
    webui.control("Token downsampling factor").value = 2.0
    assert webui.counts() == [4] * 4
    webui.control("Override the settings with these").value = True
    assert webui.counts() == [16] * 4
    assert webui.counts("img2img") == [4] * 3


def test_the_accordion_shows_what_its_tab_has_under_the_name_that_requests_to_the_api_know(webui):
    assert webui.tabs["txt2img"].alwayson_scripts[-1].title() == "Token Downsampling"
    for tab, label in {"img2img": "the hires pass", "txt2img": "img2img"}.items():
        hidden = [control.label for control in webui.tabs[tab].inputs[1:] if not control.visible]
        assert hidden == [f"Token downsampling factor for {label}"]


def axes(webui: WebUI) -> dict[str, Any]:
    plot = webui.scripts.scripts_data[0].module
    return {axis.label: axis for axis in plot.axis_options}


def test_the_axes_of_the_xyz_plot(webui):
    found = axes(webui)
    assert list(found)[1:4] == ["[ToDo] Downsampling factor", "[ToDo] Downsampling factor 2", "[ToDo] Disable after"]
    assert len(found) == 1 + 10  # one for each setting
    types = {name: found[f"[ToDo] {name}"].type for name in ("Disable after", "Automatic factor", "Phase")}
    assert types == {"Disable after": float, "Automatic factor": str, "Phase": str}
    assert found["[ToDo] Phase"].choices() == ["dither", "fixed"]


def test_a_plot_wins_over_settings_and_accordion(webui):
    webui.set(factor=4.0, auto=True)
    webui.control("Override the settings with these").value = True
    p = webui.generation()
    axes(webui)["[ToDo] Downsampling factor"].apply(p, 2.0, [1.0, 2.0])
    axes(webui)["[ToDo] Phase"].apply(p, "fixed", ["fixed"])
    with recording(webui.unet) as record:
        done = webui.processing.process_images(copy.copy(p))
    assert record.rows == [expected_keys(FINE, 0, phase="fixed")] * 4
    assert "ToDo factor: 2.0" in done.infotext


def test_the_cells_of_a_plot_write_only_their_own_infotext(webui):
    p, axis = webui.generation(), axes(webui)["[ToDo] Downsampling factor"]
    cells = [copy.copy(p) for _ in range(2)]
    for cell, factor in zip(cells, (2.0, 1.0), strict=True):
        axis.apply(cell, factor, [2.0, 1.0])
    infotexts = [webui.processing.process_images(cell).infotext for cell in cells]
    assert "ToDo factor: 2.0" in infotexts[0]
    assert infotexts[1] == "Steps: 4"
