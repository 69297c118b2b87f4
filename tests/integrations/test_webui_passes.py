"""The extension in AUTOMATIC1111's webui and in Forge: the keys that a real UNet gets, pass by pass, step by step."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from webui_world import ForgeUI, WebUI, expected_keys, keys
from zoo import recording

import todome
from todome.hooks.attaching import our_hooks

FINE, HIRES = (8, 8), (16, 16)
VERSION = f"todome: {todome.__version__}"
OTHERS = "HyperTile, token merging or a reference of ControlNet changes the tokens: use one of them."


def test_off_is_as_if_it_were_not_there(either: WebUI):
    off = either.draw(enable_hr=True)
    for tab in either.tabs.values():
        tab.alwayson_scripts.clear()
    without = either.draw(enable_hr=True)
    assert torch.equal(off.samples, without.samples)
    assert off.infotext == without.infotext == "Steps: 4"


def test_off_touches_neither_the_model_nor_the_sampler(webui: WebUI):
    def looking(params: Any) -> None:
        assert "launch_sampling" not in vars(params.denoiser.sampler)
        assert not list(our_hooks(webui.unet))

    webui.script_callbacks.on_cfg_denoiser(looking)
    webui.draw(enable_hr=True)
    webui.set(factor=2.0, disable_after=0.0)
    webui.draw()


@pytest.mark.parametrize(
    ("guided_at_once", "fields", "turns"),
    [
        (True, {"steps": 6}, range(6)),
        (True, {"sampler_name": "Heun"}, [0, 0, 1, 1, 2, 2, 3]),  # of second order
        (False, {"steps": 3}, [0, 0, 1, 1, 2, 2]),  # guidance in two calls
    ],
)
def test_keys_are_dropped_and_dithered_step_by_step(webui: WebUI, guided_at_once: bool, fields: Any, turns: Any):
    webui.set(factor=2.0)
    webui.shared.opts.batch_cond_uncond = guided_at_once
    assert keys(webui, **fields) == [expected_keys(FINE, turn) for turn in turns]


@pytest.mark.parametrize(
    ("settings", "tab", "fields", "expected"),
    [
        ({"factor_hr": "4"}, "txt2img", {"enable_hr": True}, [16] * 2 + [64] * 2 + [16] * 2 + [256] * 2),
        ({}, "txt2img", {"enable_hr": True, "hr_second_pass_steps": 6}, [16] * 2 + [64] * 5 + [256] * 3),
        ({}, "txt2img", {"sampler_name": "Heun"}, [16] * 4 + [64] * 3),
        ({}, "img2img", {"steps": 9, "denoising_strength": 0.4}, [16] * 2 + [64] * 2),
        ({"method": "merging", "ratio": 0.75, "disable_after": 1.0}, "txt2img", {}, [16] * 4),
    ],
)
def test_every_pass_is_reduced_by_its_own_steps(either: WebUI, settings: Any, tab: str, fields: Any, expected: Any):
    either.set(**{"factor": 2.0, "disable_after": 0.5, **settings})
    assert either.counts(tab, **fields) == expected


@pytest.mark.parametrize(
    ("settings", "tab", "infotext"),
    [
        ({"factor_hr": "2"}, "txt2img", "ToDo hires factor: 2"),
        ({"factor_img2img": "4"}, "img2img", "ToDo img2img factor: 4"),
        ({"factor2": 2.0}, "txt2img", "ToDo factor: 1.0, ToDo factor2: 2.0"),
        (
            {"method": "merging", "ratio": 0.75},
            "txt2img",
            f"Steps: 4, ToDo method: merging, ToDo merging ratio: 0.75, ToDo disable after: 1.0, {VERSION}",
        ),
    ],
)
def test_infotext_says_what_was_set(webui: WebUI, settings: Any, tab: str, infotext: str):
    webui.set(**settings)
    fields = {"enable_hr": True} if "factor_hr" in settings else {}
    assert infotext in webui.draw(tab, **fields).infotext


@pytest.mark.parametrize(("own", "kept"), [("same", 64), ("off", 256), ("4", 16), ("auto", 256)])
@pytest.mark.filterwarnings("ignore:factor=.auto")
def test_the_hires_pass_has_its_own_factor(webui: WebUI, own: str, kept: int):
    webui.set(factor=2.0, factor_hr=own)
    assert webui.counts(enable_hr=True, steps=2) == [16] * 2 + [kept] * 2


def test_the_automatic_factor(webui: WebUI):
    webui.set(factor=3.0, auto=True)
    with recording(webui.unet) as record:
        done = webui.draw(size=66, steps=1)
    assert [len(rows) for rows in record.rows] == [33 * 33]
    assert done.infotext == (
        "Steps: 1, ToDo factor2: 1.0, ToDo auto: True, ToDo phase: dither, ToDo method: downsampling, "
        f"ToDo disable after: 1.0, {VERSION}"
    )


def test_the_log_says_what_was_reduced(either: WebUI, capsys: pytest.CaptureFixture[str]):
    either.set(factor=2.0, factor_hr="4")
    either.draw(enable_hr=True)
    assert capsys.readouterr().out == (
        "todome: first pass: level 1, 3 layers: factor 2.0, 8x8 = 64 -> 16 keys, in 4 of 4 steps\n"
        "todome: hires pass: level 1, 3 layers: factor 4.0, 16x16 = 256 -> 16 keys, in 4 of 4 steps\n"
    )


def test_what_is_out_of_range_ends_the_generation_and_leaves_nothing(either: WebUI):
    either.set(factor=5.0)
    with pytest.raises(ValueError, match=r"^factor=5.0 cannot be used. Allowed: at most 4 on a grid of 4x4 tokens"):
        either.draw(size=4)
    either.assert_untouched()


def test_layers_whose_tokens_others_have_merged_are_dense_and_the_log_says_so(webui: WebUI, capsys: Any):
    """As the webui's own token merging does it: the attention sees every other token."""
    for block in (module for module in webui.unet.modules() if hasattr(module, "attn1")):
        plain = block.attn1.forward
        block.attn1.forward = lambda x, plain=plain, **given: plain(x[:, ::2], **given).repeat_interleave(2, 1)
    dense = webui.draw()
    webui.set(factor=2.0)
    assert torch.equal(webui.draw().samples, dense.samples)
    assert capsys.readouterr().out == f"todome: first pass: nothing was reduced. {OTHERS}\n"


def test_forge_draws_what_automatic1111_would(forge: ForgeUI):
    """The same weights, reduced by hooks as in AUTOMATIC1111."""
    forge.set(factor=2.0, factor2=1.5)
    patched = forge.draw(sampler_name="Heun")
    model = forge.shared.sd_model
    forge.shared.sd_model = SimpleNamespace(model=forge.patcher.model, apply_model=model.apply_model)
    hooked = forge.processing.process_images(forge.generation(sampler_name="Heun"))
    assert torch.equal(hooked.samples, patched.samples)
