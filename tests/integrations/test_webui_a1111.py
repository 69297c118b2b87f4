"""The extension in AUTOMATIC1111's webui, from its settings to the keys that a real ldm UNet gets."""

import copy
import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from ldm.modules.diffusionmodules.util import timestep_embedding
from webui_world import EXTENSION, WebUI, expected_keys, ldm_model, own_modules
from zoo import recorded, recording

from todome import Downsample
from todome.hooks import clocks_on, hung

OLD = ("factor", "factor2", "disable_after")
FINE, HIRES = (8, 8), (16, 16)


@pytest.fixture
def webui() -> Iterator[WebUI]:
    with own_modules():
        yield WebUI(ldm_model())


def unet(webui: WebUI) -> Any:
    return webui.shared.sd_model.model.diffusion_model


def keys(webui: WebUI, tab: str = "txt2img", **fields: Any) -> list[list[int]]:
    """Which tokens were keys of the first layer, call by call."""
    with recording(unet(webui)) as record:
        webui.draw(tab, **fields)
    return record.rows


def counts(webui: WebUI, tab: str = "txt2img", **fields: Any) -> list[int]:
    return [len(rows) for rows in keys(webui, tab, **fields)]


def test_the_older_extensions_settings(webui):
    labels = webui.shared.opts.data_labels
    known = {name: labels[f"token_downsampling_{name}"] for name in OLD}
    assert [info.label for info in known.values()] == [
        "Token downsampling factor",
        "Token downsampling factor 2",
        "Token downsampling disable after",
    ]
    factor = {"minimum": 1.0, "maximum": 5.0, "step": 0.5}
    limits = [factor, factor, {"minimum": 0.0, "maximum": 1.0, "step": 0.1}]
    assert [info.component_args for info in known.values()] == limits
    assert [info.default for info in known.values()] == [1.0, 1.0, 1.0]
    assert [info.infotext for info in known.values()] == ["ToDo factor", "ToDo factor2", "ToDo disable after"]


def test_all_settings_are_in_one_section(webui):
    added = webui.shared.opts.data_labels
    assert len(added) == 9
    assert {info.section for info in added.values()} == {("token_downsampling", "Token Downsampling")}
    assert all(info.comment_after for info in added.values())


def test_saved_settings_of_the_older_extension_carry_over():
    with own_modules():
        importlib.import_module("modules.shared").opts.token_downsampling_factor = 2.0
        assert counts(WebUI(ldm_model())) == [16] * 4


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
        assert not list(hung(unet(webui)))
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
    assert done.infotext == "Steps: 1, ToDo auto: True, ToDo factor2: 1.0, ToDo phase: dither, ToDo disable after: 1.0"


def test_merging(webui):
    webui.set(method="merging", ratio=0.75)
    with recording(unet(webui)) as record:
        done = webui.draw()
    assert [len(rows) for rows in record.rows] == [16] * 4
    assert done.infotext == "Steps: 4, ToDo method: merging, ToDo merging ratio: 0.75, ToDo disable after: 1.0"


def test_the_log_says_what_was_reduced(webui, capsys):
    webui.set(factor=2.0, factor_hr="4")
    webui.draw(enable_hr=True)
    assert capsys.readouterr().out == (
        "todome: first pass: level 1, 3 layers: factor 2.0, 8x8 = 64 -> 16 keys\n"
        "todome: hires pass: level 1, 3 layers: factor 4.0, 16x16 = 256 -> 16 keys\n"
    )


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
    old = "Steps: 4, ToDo factor: 2.0, ToDo factor2: 1.0, ToDo disable after: 0.5"
    webui.infotext_utils.paste(old, webui.tabs["txt2img"].infotext_fields)
    assert counts(webui) == [16] * 2 + [64] * 2


def test_infotext_of_a_dense_picture_overrides_nothing(webui):
    webui.control("Override the settings with these").value = True
    webui.infotext_utils.paste("Steps: 4", webui.tabs["txt2img"].infotext_fields)
    assert webui.control("Override the settings with these").value is False


def test_the_accordion_overrides_the_settings(webui):
    webui.set(factor=4.0)
    webui.control("Token downsampling factor").value = 2.0
    assert counts(webui) == [4] * 4
    webui.control("Override the settings with these").value = True
    assert counts(webui) == [16] * 4
    assert counts(webui, "img2img") == [4] * 3


def test_the_accordion_shows_what_its_tab_has(webui):
    for tab, label in {"img2img": "the hires pass", "txt2img": "img2img"}.items():
        hidden = [control.label for control in webui.tabs[tab].inputs[1:] if not control.visible]
        assert hidden == [f"Token downsampling factor for {label}"]


def axes(webui: WebUI) -> dict[str, Any]:
    plot = webui.scripts.scripts_data[0].module
    return {axis.label: axis for axis in plot.axis_options}


def test_the_axes_of_the_xyz_plot(webui):
    found = axes(webui)
    assert list(found)[1:4] == ["[ToDo] Downsampling factor", "[ToDo] Downsampling factor 2", "[ToDo] Disable after"]
    assert list(found)[4:] == [
        "[ToDo] Automatic factor",
        "[ToDo] Hires factor",
        "[ToDo] img2img factor",
        "[ToDo] Phase",
        "[ToDo] Method",
        "[ToDo] Merging ratio",
    ]
    assert [found[f"[ToDo] {name}"].type for name in ("Disable after", "Automatic factor", "Phase")] == [
        float,
        str,
        str,
    ]
    assert found["[ToDo] Phase"].choices() == ["dither", "fixed"]


def test_a_plot_wins_over_settings_and_accordion(webui):
    webui.set(factor=4.0, auto=True)
    webui.control("Override the settings with these").value = True
    p = webui.generation()
    axes(webui)["[ToDo] Downsampling factor"].apply(p, 2.0, [1.0, 2.0])
    axes(webui)["[ToDo] Phase"].apply(p, "fixed", ["fixed"])
    with recording(unet(webui)) as record:
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


def test_a_plot_of_the_automatic_factor(webui):
    webui.set(factor=2.0)
    p = webui.generation()
    axes(webui)["[ToDo] Automatic factor"].apply(p, "True", ["True", "False"])
    with pytest.warns(UserWarning, match="leaves this model dense"), recording(unet(webui)) as record:
        webui.processing.process_images(p)
    assert [len(rows) for rows in record.rows] == [64] * 4


def test_an_interrupted_generation_leaves_nothing(webui):
    webui.set(factor=2.0)
    webui.script_callbacks.on_cfg_denoiser(lambda params: interrupt(webui, params.denoiser.step == 1))
    assert counts(webui) == [16] * 2


def interrupt(webui: WebUI, now: bool) -> None:
    webui.shared.state.interrupted = now


def test_an_error_leaves_nothing(webui):
    webui.set(factor=2.0)
    unet(webui).out.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        webui.draw()
    assert not list(hung(unet(webui)))


def fail(*_: Any) -> None:
    raise RuntimeError("out of memory")


def test_what_is_out_of_range_ends_the_generation_with_a_sentence(webui):
    webui.set(factor=5.0)
    text = (
        "factor=5.0 cannot be used. Allowed: at most 4 on a grid of 4x4 tokens. "
        "Lower the factor, or make the picture larger."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        webui.draw(size=4)
    assert not list(hung(unet(webui)))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"method": "averaging"},
            'method=\'averaging\' cannot be used. Allowed: "downsampling" or "merging". The first is closer to dense.',
        ),
        (
            {"factor_img2img": "much"},
            'factor=\'much\' cannot be used. Allowed: "same", "off", "auto" or a number of at least 1. '
            "The default is the first.",
        ),
    ],
)
def test_values_that_do_not_exist(webui, values, text):
    webui.set(factor=2.0, **values)
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        webui.draw("img2img")


def test_a_model_with_nothing_to_reduce_is_drawn_dense_and_says_so(webui, capsys):
    for part in unet(webui).modules():
        if hasattr(part, "disable_self_attn"):
            part.disable_self_attn = True
    webui.set(factor=2.0)
    p = webui.generation()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webui.shared.sd_model, "apply_model", lambda x, sigma: x)
        webui.processing.process_images(p)
    assert "todome: first pass: dense. target=UNetModel has no BasicTransformerBlock" in capsys.readouterr().out
    (comment,) = p.comments
    assert comment.startswith("Token Downsampling: first pass is dense. ")


def test_another_model_leaves_nothing_on_the_old_one(webui):
    webui.set(factor=2.0)
    webui.draw()
    old, webui.shared.sd_model = webui.shared.sd_model, ldm_model()
    assert counts(webui) == [16] * 4
    assert not clocks_on(old.model.diffusion_model)


def test_the_refiner_takes_over_in_the_middle(webui):
    webui.set(factor=2.0)
    first, refiner = webui.shared.sd_model, ldm_model()
    p = webui.generation()
    p.refiner, p.refiner_at = refiner, 2
    with recording(first.model.diffusion_model) as before, recording(refiner.model.diffusion_model) as after:
        webui.processing.process_images(p)
    assert before.rows == [expected_keys(FINE, 0), expected_keys(FINE, 1)]
    assert after.rows == [expected_keys(FINE, 2), expected_keys(FINE, 3)]
    assert not clocks_on(first.model.diffusion_model)
    assert not clocks_on(refiner.model.diffusion_model)


def test_a_replaced_forward(webui):
    """As the extensions for DeepCache and ControlNet do it: the UNet's own forward is called from another one."""
    model = unet(webui)
    own, calls = model.forward, []
    model.forward = lambda *args, **kwargs: calls.append(1) or own(*args, **kwargs)
    webui.set(factor=2.0)
    assert keys(webui) == [expected_keys(FINE, step) for step in range(4)]
    assert len(calls) == 4
    assert "forward" in vars(model)


def test_deepcache_skips_the_deeper_blocks(webui):
    """In every second call, DeepCache calls only the outermost blocks and takes the rest from the call before."""
    model = unet(webui)
    own, deep = model.forward, {}

    def caching(x: Any, timesteps: Any, context: Any) -> Any:
        if webui.sd_samplers.shared.state.sampling_step % 2 == 0 or not deep:
            hook = model.output_blocks[-2].register_forward_hook(lambda _, __, output: deep.update(h=output))
            try:
                return own(x, timesteps, context=context)
            finally:
                hook.remove()
        return shallow(model, x, timesteps, context, deep["h"])

    model.forward = caching
    webui.set(factor=2.0)
    assert counts(webui, steps=6) == [16] * 6


def shallow(model: Any, x: Any, timesteps: Any, context: Any, deep: Any) -> Any:
    embedding = model.time_embed(timestep_embedding(timesteps, model.model_channels))
    first = model.input_blocks[0](x, embedding, context)
    model.input_blocks[1](first, embedding, context)
    return model.out(model.output_blocks[-1](torch.cat([deep, first], 1), embedding, context))


def test_two_requests_for_one_pass_are_one(webui):
    """Forge asks scripts twice before its hires pass."""
    webui.set(factor=2.0)
    p = webui.generation()
    ask = p.scripts.run
    p.scripts.run = lambda name, p, **kwargs: [ask(name, p, **kwargs), ask(name, p, **kwargs)]
    with recording(unet(webui)) as record:
        webui.processing.process_images(p)
    assert record.rows == [expected_keys(FINE, step) for step in range(4)]
    assert "launch_sampling" not in vars(p.sampler)


def test_another_extensions_launch_is_kept(webui, monkeypatch):
    webui.set(factor=2.0)
    kept = []
    sampler = webui.sd_samplers.Sampler
    build = sampler.__init__

    def wrapped(self: Any, name: str) -> None:
        build(self, name)
        self.launch_sampling = lambda steps, func: kept.append(steps) or sampler.launch_sampling(self, steps, func)

    monkeypatch.setattr(sampler, "__init__", wrapped)
    assert counts(webui) == [16] * 4
    assert kept == [4]


def test_todome_that_is_missing_is_told(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not registered_scripts()
    assert capsys.readouterr().out == (
        "todome: The extension is here, but todome itself is not. Run `todome install --webui PATH` with the folder of "
        "this webui, or install todome in its environment.\n"
    )


def test_an_old_torch_is_told(monkeypatch, capsys):
    monkeypatch.setattr("torch.__version__", "2.1.2+cu121")
    assert not registered_scripts()
    assert capsys.readouterr().out == (
        "todome: torch='2.1.2+cu121' cannot be used. Allowed: 2.4 or newer. "
        "Install a newer torch in the environment of this webui, or remove the extension.\n"
    )


def registered_scripts() -> list[Any]:
    with own_modules():
        scripts = importlib.import_module("modules.scripts")
        scripts.load_script(EXTENSION / "scripts" / "todome_webui.py")
        return scripts.scripts_data


def test_reductions_are_made_by_the_core(webui):
    settings = importlib.import_module("todome_webui.settings").Settings
    assert settings(factor=2.0, factor2=1.5).reduction("same") == Downsample((2.0, 1.5))
    assert settings(factor=2.0, disable_after=0.6).reduction("3") == Downsample(3.0, stop=0.6)
    assert settings(factor=2.0).reduction("auto") == Downsample("auto")
