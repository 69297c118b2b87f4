"""The extension in Forge, whose UNet calls patches as ComfyUI's does: here it is that of ComfyUI."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from comfy_host import WORDS, comfyui, tiny_model, watched
from webui_world import WebUI, own_modules

from todome import Downsample

FINE, KEPT = 64, 16


class ForgeModel:
    """Reads its settings anew at every call, and tells its UNet the noise level, but not the schedule."""

    def __init__(self, unet: Any) -> None:
        self.forge_objects = SimpleNamespace(unet=unet)

    def apply_model(self, x: Any, sigma: float) -> Any:
        unet, sigmas = self.forge_objects.unet, torch.full((len(x),), sigma)
        options = {**unet.model_options["transformer_options"], "sigmas": sigmas}
        words = torch.ones(len(x), 3, WORDS)
        return unet.model.diffusion_model(x, sigmas * 999, context=words, transformer_options=options)


@pytest.fixture(scope="module")
def comfy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with comfyui(tmp_path_factory.mktemp("comfyui")) as modules:
        yield modules


@pytest.fixture
def webui(comfy: Any) -> Iterator[WebUI]:
    with own_modules():
        yield WebUI(ForgeModel(tiny_model(comfy)))


def objects(webui: WebUI) -> Any:
    return webui.shared.sd_model.forge_objects


def draw(webui: WebUI, **fields: Any) -> Any:
    before = objects(webui).unet
    done = webui.processing.process_images(webui.generation(**fields))
    assert not webui.errors.noted
    assert objects(webui).unet is before
    assert not before.model_options["transformer_options"]
    return done


def keys(webui: WebUI, **fields: Any) -> list[int]:
    """How many keys the first self-attention of the model had, call by call."""
    with watched(objects(webui).unet) as calls:
        draw(webui, **fields)
    layers = sum(type(m).__name__ == "BasicTransformerBlock" for m in objects(webui).unet.model.modules())
    return [kept for _, kept in calls[::layers]]


def test_off_is_as_if_it_were_not_there(webui):
    off = draw(webui, enable_hr=True)
    for tab in webui.tabs.values():
        tab.alwayson_scripts.clear()
    assert torch.equal(off.samples, draw(webui, enable_hr=True).samples)


def test_every_pass_is_reduced_by_its_own_steps(webui):
    webui.set(factor=2.0, factor_hr="4", disable_after=0.5)
    assert keys(webui, enable_hr=True) == [KEPT] * 2 + [FINE] * 2 + [4 * FINE // 16] * 2 + [4 * FINE] * 2


def test_a_second_order_sampler_keeps_its_step(webui):
    webui.set(factor=2.0, disable_after=0.5)
    assert keys(webui, sampler_name="Heun") == [KEPT] * 4 + [FINE] * 3


def test_it_draws_what_automatic1111_would(webui, comfy):
    """The same weights, reduced by hooks as in AUTOMATIC1111."""
    webui.set(factor=2.0, factor2=1.5)
    patched = draw(webui, sampler_name="Heun")
    model = webui.shared.sd_model
    hooked = SimpleNamespace(model=objects(webui).unet.model, apply_model=model.apply_model)
    webui.shared.sd_model = hooked
    assert torch.equal(webui.processing.process_images(webui.generation(sampler_name="Heun")).samples, patched.samples)


def test_merging(webui):
    webui.set(method="merging", ratio=0.75)
    assert keys(webui) == [KEPT] * 4


def test_the_log_says_what_was_reduced(webui, capsys):
    webui.set(factor=2.0)
    draw(webui)
    assert capsys.readouterr().out == (
        "todome: first pass: level 1, 3 layers: factor 2.0, 8x8 = 64 -> 16 keys, in 4 of 4 steps\n"
    )


def test_an_error_leaves_nothing(webui):
    webui.set(factor=5.0)
    before = objects(webui).unet
    with pytest.raises(ValueError, match=r"^factor=5.0 cannot be used. Allowed: at most 4 on a grid of 4x4 tokens"):
        draw(webui, size=4)
    assert objects(webui).unet is before


def test_tokens_that_others_have_merged_are_left_alone_and_the_log_says_so(webui, capsys):
    objects(webui).unet.set_model_attn1_patch(lambda q, k, v, options: (q[:, ::2], k[:, ::2], v[:, ::2]))
    objects(webui).unet.set_model_attn1_output_patch(lambda n, options: n.repeat_interleave(2, 1))
    webui.set(factor=2.0)
    webui.processing.process_images(webui.generation(steps=1))
    assert capsys.readouterr().out == (
        "todome: first pass: nothing was reduced. HyperTile, token merging or a reference of ControlNet changes "
        "the tokens: use one of them.\n"
    )


def test_queries_that_others_have_merged_get_fewer_keys_all_the_same(webui):
    """As Forge's own token merging does it, which changes the queries alone."""
    objects(webui).unet.set_model_attn1_patch(lambda q, k, v, options: (q[:, ::2], k, v))
    objects(webui).unet.set_model_attn1_output_patch(lambda n, options: n.repeat_interleave(2, 1))
    webui.set(factor=2.0)
    with watched(objects(webui).unet) as calls:
        webui.processing.process_images(webui.generation(steps=1))
    assert calls[0] == (FINE // 2, KEPT)


def test_patches_of_others_stay(webui):
    called = []

    def other(q: Any, k: Any, v: Any, options: Any) -> Any:
        called.append(k.shape[1])
        return q, k, v

    objects(webui).unet.set_model_attn1_patch(other)
    webui.set(factor=2.0)
    with watched(objects(webui).unet) as calls:
        webui.processing.process_images(webui.generation(steps=1))
    assert called[0] == FINE
    assert calls[0] == (FINE, KEPT)


def test_settings_that_others_clone_follow_the_sampler_too(webui):
    from todome_webui.forge import ReducedModel

    reduced = ReducedModel(webui.shared.sd_model, Downsample(2, stop=0.5))
    objects(webui).unet = objects(webui).unet.clone()
    (copied,) = objects(webui).unet.model_options["transformer_options"]["patches"]["attn1_patch"]
    assert copied.__self__.clock.active
    webui.shared.sd_model.apply_model(torch.zeros(1, 4, 8, 8), 1.0)
    reduced.at(3, 4)
    assert not copied.__self__.clock.active
    assert [level.grids for level in reduced.remove()] == [{(8, 8): KEPT}]
