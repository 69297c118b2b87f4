"""Whatever happens in AUTOMATIC1111's webui, and whoever else is there: nothing is left, and problems are told."""

import importlib
import importlib.metadata
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from webui_world import EXTENSION, expected_keys, ldm_model, own_modules
from zoo import recording

import todome
from todome.hooks.attaching import our_hooks, patches_on

FINE = (8, 8)


def test_an_interrupted_generation_leaves_nothing(webui):
    webui.set(factor=2.0)
    webui.script_callbacks.on_cfg_denoiser(lambda params: webui.interrupt(params.denoiser.step == 1))
    assert webui.counts() == [16] * 2


def test_an_error_leaves_nothing(webui):
    webui.set(factor=2.0)
    webui.unet.out.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        webui.draw()
    assert not list(our_hooks(webui.unet))


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
    webui.shared.sd_model.apply_model = lambda x, sigma: x
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
    assert not patches_on(first.model.diffusion_model)
    assert not patches_on(refiner.model.diffusion_model)


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


def loaded_parts() -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] == "todome"]


def raise_missing(name: str) -> str:
    raise importlib.metadata.PackageNotFoundError(name)


@pytest.fixture
def alone(monkeypatch) -> Iterator[None]:
    """No todome is loaded, and none is installed. The copy that is loaded instead is forgotten afterwards."""
    for name in loaded_parts():
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.metadata.version", raise_missing)
    yield
    for name in loaded_parts():
        del sys.modules[name]


@pytest.mark.usefixtures("alone")
def test_todome_that_is_missing_is_told(tmp_path, capsys):
    without = tmp_path / "extension"
    shutil.copytree(EXTENSION, without, ignore=shutil.ignore_patterns("vendor"))
    assert not registered_scripts(without)
    assert "The extension is here, but todome 0.1 itself is not. Run `todome install`" in capsys.readouterr().out


@pytest.mark.usefixtures("alone")
def test_the_copy_is_loaded_beside_another_version_without_a_trace_on_the_path(monkeypatch, capsys):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "7.1.0")
    before = list(sys.path)
    assert registered_scripts()
    assert Path(sys.modules["todome"].__file__ or "").is_relative_to(EXTENSION / "vendor")
    assert sys.path == before
    assert capsys.readouterr().out == f"todome: using todome {todome.__version__}, the copy in the extension\n"


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("todome.__version__", "todome='7.1.0', which something else has loaded already, cannot be used."),
        ("torch.__version__", "todome: torch='2.0.1+cu118' cannot be used. Allowed: 2.1 or newer."),
    ],
)
def test_a_version_that_cannot_be_used_is_told(monkeypatch, capsys, version, said):
    monkeypatch.setattr(version, said.split("'")[1])
    assert not registered_scripts()
    assert said in capsys.readouterr().out


def registered_scripts(extension: Path = EXTENSION) -> list[Any]:
    with own_modules():
        scripts = importlib.import_module("modules.scripts")
        scripts.load_script(extension / "scripts" / "todome_webui.py")
        return scripts.scripts_data
