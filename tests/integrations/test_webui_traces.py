"""Whatever happens in AUTOMATIC1111's webui, and whoever else is there: nothing is left, and problems are told."""

import importlib
import importlib.metadata
import json
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from ldm.modules.diffusionmodules.util import timestep_embedding
from webui_world import EXTENSION, expected_keys, keys, ldm_model, own_modules
from zoo import recording

import todome
from todome.hooks.modules import clocks_on, our_hooks

FINE = (8, 8)


def test_an_interrupted_generation_leaves_nothing(webui):
    webui.set(factor=2.0)
    webui.script_callbacks.on_cfg_denoiser(lambda params: webui.interrupt(params.denoiser.step == 1))
    assert webui.counts() == [16] * 2


def test_an_error_leaves_nothing(webui):
    webui.set(factor=2.0)
    webui.unet.out.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        webui.draw()
    assert not list(our_hooks(webui.unet))


def fail(*_: Any) -> None:
    raise RuntimeError("out of memory")


@pytest.mark.parametrize("values", [{"method": "averaging"}, {"factor_img2img": "much"}], ids=str)
def test_values_that_do_not_exist(webui, values):
    webui.set(factor=2.0, **values)
    with pytest.raises(ValueError, match=r"^(method|factor)='(averaging|much)' cannot be used. Allowed: "):
        webui.draw("img2img")


def test_a_model_with_nothing_to_reduce_is_drawn_dense_and_says_so(webui, capsys):
    for part in webui.unet.modules():
        if hasattr(part, "disable_self_attn"):
            part.disable_self_attn = True
    webui.set(factor=2.0)
    p = webui.generation()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webui.shared.sd_model, "apply_model", lambda x, sigma: x)
        webui.processing.process_images(p)
    assert "todome: first pass: dense. target=UNetModel has no BasicTransformerBlock" in capsys.readouterr().out
    (comment,) = p.comments
    assert comment.startswith("todome: first pass: dense. ")


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


def test_deepcache_skips_the_deeper_blocks(webui):
    """In every second call, DeepCache calls only the outermost blocks and takes the rest from the call before."""
    model = webui.unet
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
    assert keys(webui, steps=6) == [expected_keys(FINE, step) for step in range(6)]
    assert model.forward is caching


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
    p.scripts.run = lambda *given, **kwargs: [ask(*given, **kwargs), ask(*given, **kwargs)]
    with recording(webui.unet) as record:
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
    assert webui.counts() == [16] * 4
    assert kept == [4]


def test_why_nothing_was_reduced_stands_under_the_picture(webui, capsys):
    webui.set(auto=True)
    p = webui.generation()
    with pytest.warns(UserWarning, match="leaves this model dense"):
        webui.processing.process_images(p)
    (comment,) = p.comments
    assert comment.startswith("todome: first pass: nothing was reduced. The automatic factor leaves up to 4096 tokens")
    assert capsys.readouterr().out == f"{comment}\n"
    webui.set(auto=False, factor=2.0, disable_after=0.1)
    webui.script_callbacks.on_cfg_denoiser(lambda params: webui.interrupt())
    webui.draw(steps=1)


def test_a_script_that_samples_by_itself_is_told(webui, capsys):
    webui.set(factor=2.0)
    p = webui.generation()
    p.sample = lambda: p.noise(8)
    comment = webui.processing.process_images(p).comments
    assert comment.startswith("todome: nothing was reduced. The chosen script")
    assert capsys.readouterr().out == f"{comment}\n"
    assert webui.draw().comments == ""


def test_the_accordion_says_what_was_done(webui):
    tab = webui.tabs["txt2img"]
    script = tab.alwayson_scripts[-1]
    webui.set(factor=2.0, disable_after=0.5)
    webui.draw()
    tab.result.set("of the first picture")
    line = "first pass: level 1, 3 layers: factor 2.0, 8x8 = 64 -&gt; 16 keys, in 2 of 4 steps"
    assert line in script.report.value
    webui.set(factor=1.0)
    webui.draw()
    tab.result.set("of the second picture")
    assert "Off" in script.gain.value()  # what a page that is opened now shows
    assert "without todome" in script.report.value


def test_the_accordion_says_what_to_expect(webui):
    tab = webui.tabs["txt2img"]
    gain = tab.alwayson_scripts[-1].gain
    tab.width.set(1024)
    assert "Off" in gain.value
    webui.set(factor=2.0)
    tab.height.set(1024)
    assert re.search(r"[12]\.\d+x with SD 1.5, .* at 1024 x 1024: the time of a step with factor 2 on", gain.value)
    webui.set(auto=True)
    tab.width.set(256)
    assert "At 256 x 1024 the automatic factor changes nothing" in gain.value
    webui.set(method="merging")
    tab.width.set(2048)
    assert "Merging gains less" in gain.value


def test_expected_gains_are_those_that_were_measured(monkeypatch):
    benchmarks = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(str(benchmarks))
    gains = importlib.import_module("gains").gains(benchmarks / "results" / "speed-h200.json")
    assert json.loads((EXTENSION / "todome_webui" / "gains.json").read_text()) == gains


def test_passes_of_two_threads_do_not_mix(webui):
    """The webui makes one generation after the other; whoever does not gets no other pass's steps."""
    running = importlib.import_module("todome_webui.passes").running
    running.current = "of this thread"
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: running.current).result() is None
    running.current = None


@pytest.fixture
def alone(monkeypatch) -> Iterator[None]:
    """No todome is loaded, and none is installed. The copy that is loaded instead is forgotten afterwards."""
    for name in loaded_parts():
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.metadata.version", raise_missing)
    yield
    for name in loaded_parts():
        del sys.modules[name]


def loaded_parts() -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] == "todome"]


def raise_missing(name: str) -> str:
    raise importlib.metadata.PackageNotFoundError(name)


@pytest.mark.usefixtures("alone")
def test_todome_that_is_missing_is_told(tmp_path, capsys):
    without = tmp_path / "extension"
    shutil.copytree(EXTENSION, without, ignore=shutil.ignore_patterns("vendor"))
    assert not registered_scripts(without)
    assert "The extension is here, but todome 0.1 itself is not. Run `todome install`" in capsys.readouterr().out


@pytest.mark.usefixtures("alone")
def test_the_copy_is_loaded_without_a_trace_on_the_path(capsys):
    before = list(sys.path)
    assert registered_scripts()
    assert Path(sys.modules["todome"].__file__ or "").is_relative_to(EXTENSION / "vendor")
    assert sys.path == before
    assert capsys.readouterr().out == f"todome: using todome {todome.__version__}, the copy in the extension\n"


@pytest.mark.usefixtures("alone")
def test_an_installed_todome_of_another_version_is_left_alone(monkeypatch, capsys):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "7.1.0")
    assert registered_scripts()
    assert "the copy in the extension" in capsys.readouterr().out


def test_a_loaded_todome_of_another_version_is_refused(monkeypatch, capsys):
    other: Any = ModuleType("todome")
    other.__version__ = "7.1.0"
    monkeypatch.setitem(sys.modules, "todome", other)
    assert not registered_scripts()
    assert "todome='7.1.0', which something else has loaded already, cannot be used." in capsys.readouterr().out


def test_an_old_torch_is_told(monkeypatch, capsys):
    monkeypatch.setattr("torch.__version__", "2.0.1+cu118")
    assert not registered_scripts()
    assert "todome: torch='2.0.1+cu118' cannot be used. Allowed: 2.1 or newer." in capsys.readouterr().out


def test_the_extension_is_written_for_this_version():
    with own_modules():
        sys.path.insert(0, str(EXTENSION))
        assert importlib.import_module("find_todome").fits(todome.__version__)


def registered_scripts(extension: Path = EXTENSION) -> list[Any]:
    with own_modules():
        scripts = importlib.import_module("modules.scripts")
        scripts.load_script(extension / "scripts" / "todome_webui.py")
        return scripts.scripts_data
