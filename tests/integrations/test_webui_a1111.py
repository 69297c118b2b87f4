"""The extension in AUTOMATIC1111's webui: the keys that a real ldm UNet gets, pass by pass and step by step."""

import importlib
from typing import Any

import pytest
import torch
from webui_world import counts, expected_keys, keys, unet
from zoo import recorded, recording

import todome
from todome import Downsample
from todome.hooks.modules import our_hooks

FINE, HIRES = (8, 8), (16, 16)
VERSION = f"todome: {todome.__version__}"


def test_off_is_as_if_it_were_not_there(webui):
    off = webui.draw(enable_hr=True)
    for tab in webui.tabs.values():
        tab.alwayson_scripts.clear()
    without = webui.draw(enable_hr=True)
    assert torch.equal(off.samples, without.samples)
    assert off.infotext == without.infotext == "Steps: 4"


def test_off_touches_neither_the_model_nor_the_sampler(webui, monkeypatch):
    launch = webui.sd_samplers.Sampler.launch_sampling

    def looking(self: Any, *args: Any) -> Any:
        assert "launch_sampling" not in vars(self)
        assert not list(our_hooks(unet(webui)))
        return launch(self, *args)

    monkeypatch.setattr(webui.sd_samplers.Sampler, "launch_sampling", looking)
    webui.draw(enable_hr=True)
    webui.set(factor=2.0, disable_after=0.0)
    webui.draw()


def test_keys_are_dropped_and_dithered(webui):
    webui.set(factor=2.0)
    assert keys(webui, steps=6) == [expected_keys(FINE, turn) for turn in range(6)]


def test_a_fixed_phase(webui):
    webui.set(factor=2.0, phase="fixed")
    assert keys(webui, steps=3) == [expected_keys(FINE, 0, phase="fixed")] * 3


def test_the_second_level(webui):
    webui.set(factor2=2.0)
    with recorded(webui.shared.sd_model, r"attn1\.to_k$") as seen:
        done = webui.draw(steps=1)
    assert {calls[0].shape[1] for calls in seen.values()} == {64, 4}
    assert "ToDo factor: 1.0, ToDo factor2: 2.0" in done.infotext


def test_a_second_order_sampler_keeps_its_step(webui):
    webui.set(factor=2.0)
    steps = [0, 0, 1, 1, 2, 2, 3]
    assert keys(webui, sampler_name="Heun") == [expected_keys(FINE, step) for step in steps]


def test_guidance_in_two_calls_is_one_step(webui):
    webui.set(factor=2.0)
    webui.shared.opts.batch_cond_uncond = False
    assert keys(webui, steps=3) == [expected_keys(FINE, step) for step in (0, 0, 1, 1, 2, 2)]


def test_every_pass_is_reduced_by_its_own_steps(webui):
    webui.set(factor=2.0, disable_after=0.5)
    assert counts(webui, enable_hr=True, hr_second_pass_steps=6) == [16] * 2 + [64] * 2 + [64] * 3 + [256] * 3


def test_a_second_order_sampler_is_disabled_after_half_of_its_steps(webui):
    webui.set(factor=2.0, disable_after=0.5)
    assert counts(webui, sampler_name="Heun") == [16] * 4 + [64] * 3


@pytest.mark.parametrize(("own", "kept"), [("same", 64), ("off", 256), ("4", 16), ("auto", 256)])
@pytest.mark.filterwarnings("ignore:factor=.auto")
def test_the_hires_pass_has_its_own_factor(webui, own, kept):
    webui.set(factor=2.0, factor_hr=own)
    assert counts(webui, enable_hr=True) == [16] * 4 + [kept] * 4


def test_the_hires_pass_alone(webui):
    webui.set(factor_hr="2")
    assert keys(webui, enable_hr=True, steps=2)[2:] == [expected_keys(HIRES, 0), expected_keys(HIRES, 1)]
    assert "ToDo hires factor: 2" in webui.draw(enable_hr=True).infotext
    assert webui.draw().infotext == "Steps: 4"


def test_img2img_counts_the_steps_it_executes(webui):
    webui.set(factor=2.0, disable_after=0.5)
    assert counts(webui, "img2img", steps=9, denoising_strength=0.4) == [16] * 2 + [64] * 2


def test_img2img_has_its_own_factor(webui):
    webui.set(factor_img2img="4")
    assert counts(webui, "img2img") == [4] * 3
    assert counts(webui) == [64] * 4
    assert "ToDo img2img factor: 4" in webui.draw("img2img").infotext


def test_the_automatic_factor(webui):
    webui.set(factor=3.0, auto=True)
    with recording(unet(webui)) as record:
        done = webui.draw(size=66, steps=1)
    assert [len(rows) for rows in record.rows] == [33 * 33]
    assert done.infotext == (
        "Steps: 1, ToDo factor2: 1.0, ToDo auto: True, ToDo phase: dither, ToDo method: downsampling, "
        f"ToDo disable after: 1.0, {VERSION}"
    )


def test_merging(webui):
    webui.set(method="merging", ratio=0.75)
    with recording(unet(webui)) as record:
        done = webui.draw()
    assert [len(rows) for rows in record.rows] == [16] * 4
    assert (
        done.infotext == f"Steps: 4, ToDo method: merging, ToDo merging ratio: 0.75, ToDo disable after: 1.0, {VERSION}"
    )


def test_the_log_says_what_was_reduced(webui, capsys):
    webui.set(factor=2.0, factor_hr="4")
    webui.draw(enable_hr=True)
    assert capsys.readouterr().out == (
        "todome: first pass: level 1, 3 layers: factor 2.0, 8x8 = 64 -> 16 keys, in 4 of 4 steps\n"
        "todome: hires pass: level 1, 3 layers: factor 4.0, 16x16 = 256 -> 16 keys, in 4 of 4 steps\n"
    )


def merge_half(attention: Any) -> None:
    """As the webui's own token merging does: the attention sees every other token."""
    plain = attention.forward
    attention.forward = lambda x, **kwargs: plain(x[:, ::2], **kwargs).repeat_interleave(2, 1)


def test_layers_whose_tokens_others_have_merged_are_dense_and_the_log_says_so(webui, capsys):
    for block in (module for module in unet(webui).modules() if hasattr(module, "attn1")):
        merge_half(block.attn1)
    dense = webui.draw()
    webui.set(factor=2.0)
    reduced = webui.draw()
    assert torch.equal(reduced.samples, dense.samples)
    assert capsys.readouterr().out == (
        "todome: first pass: nothing was reduced. HyperTile, token merging or a reference of ControlNet "
        "changes the tokens: use one of them.\n"
    )


def test_reductions_are_made_by_the_core(webui):
    settings = importlib.import_module("todome_webui.settings").Settings
    assert settings(factor=2.0, factor2=1.5).reduction("same") == Downsample((2.0, 1.5))
    assert settings(factor=2.0, disable_after=0.6).reduction("3") == Downsample(3.0, stop=0.6)
    assert settings(factor=2.0).reduction("auto") == Downsample("auto")
