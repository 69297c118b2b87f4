"""The two examples of CONTRIBUTING.md, word by word: a lever and a kind of model that todome does not know."""

import copy
import importlib
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from versions import needs_hooks_in_graphs
from zoo import TEXT, ldm_unet, mini_unet, noise, recorded, run, small_unet, unet_inputs

import todome
from todome import Downsample, Merge, NothingToReduce
from todome.hooks.registry import HANDLERS
from todome.hosts import FINDERS

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
FILE = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHORT = 4  # of the words in a prompt


def files(heading: str) -> dict[str, str]:
    """The files of one section, by the names in their first lines."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = dict(FILE.findall(section))
    assert len(found) == section.count("```python"), "a block without the name of its file"
    return found


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """The names that a section's files define, from modules that can be imported; nothing of them stays registered."""
    names: list[str] = []

    def import_section(heading: str) -> Any:
        texts = files(heading)
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        names.extend(texts)
        modules = [importlib.import_module(name) for name in texts]
        return SimpleNamespace(**{key: value for module in modules for key, value in vars(module).items()})

    monkeypatch.syspath_prepend(str(tmp_path))
    yield import_section
    for name in names:
        sys.modules.pop(name, None)
    registries: list[dict[Any, Any]] = [HANDLERS, FINDERS]
    for registry in registries:
        for key in [key for key, value in registry.items() if value.__module__ in names]:
            del registry[key]


def attributes(model: nn.Module) -> list[Any]:
    """Every attribute of every module, with what is in the tables among them."""
    return [
        {name: dict(value) if isinstance(value, dict) else value for name, value in vars(module).items()}
        for module in model.modules()
    ]


@pytest.fixture
def short_text(imported: Callable[[str], Any]) -> Any:
    return imported("A new lever").ShortText


@pytest.mark.parametrize("build", [small_unet, ldm_unet])
def test_a_lever_of_ones_own_is_put_beside_another_one(short_text: Any, build: Callable[[], Any]):
    model, inputs = build(), unet_inputs()
    if build is ldm_unet:
        inputs = {"x": inputs["sample"], "timesteps": torch.full((2,), 500), "context": inputs["encoder_hidden_states"]}
    dense, before = run(model, **inputs), attributes(model)
    patch = todome.apply(model, Downsample(2), short_text(SHORT))
    with recorded(model, r"attn[12]\.to_k$") as seen:
        both = run(model, **inputs)
    keys = {name: calls[0].shape[1] for name, calls in seen.items()}
    assert {count for name, count in keys.items() if "attn2" in name} == {SHORT}
    assert 16 * 18 // 4 in {count for name, count in keys.items() if "attn1" in name}
    assert str(patch.levers[1]) == f"ShortText(tokens={SHORT})" in repr(patch)
    assert f"  text, {len(keys) // 2} layers: the first {SHORT} tokens" in repr(patch).splitlines()
    patch.remove()
    assert attributes(model) == before
    assert torch.equal(run(model, **inputs), dense)
    assert torch.equal(reduced(model, inputs, short_text(SHORT), Downsample(2)), both), "their order does not matter"


def reduced(model: Any, inputs: dict[str, Any], *levers: Any) -> Tensor:
    with todome.apply(model, *levers):
        return run(model, **inputs)


@pytest.mark.parametrize("masked", [False, True])
def test_its_output_is_that_of_a_text_that_is_shorter(short_text: Any, masked: bool):
    model, inputs = small_unet(), unet_inputs()
    if masked:
        inputs["encoder_attention_mask"] = torch.arange(TEXT).expand(2, -1) % 2 == 0
    cut = {name: value[:, :SHORT] if name.startswith("encoder") else value for name, value in inputs.items()}
    expected = run(model, **cut)
    assert torch.equal(reduced(model, inputs, short_text(SHORT)), expected)
    assert not torch.allclose(run(model, **inputs), expected, atol=1e-4)


def pickled(model: Any) -> Any:
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_its_hooks_are_copied_with_the_model(short_text: Any, copied: Callable[[Any], Any]):
    model, inputs = small_unet(), unet_inputs()
    dense, patch = run(model, **inputs), todome.apply(model, Downsample(2), short_text(SHORT))
    patch.at(3, 10)
    both, twin = run(model, **inputs), copied(model)
    patch.remove()
    assert torch.equal(run(twin, **inputs), both)
    assert torch.equal(run(model, **inputs), dense)
    todome.remove(twin)
    assert torch.equal(run(twin, **inputs), dense)
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in twin.modules())


def test_checkpointing_computes_it_again(short_text: Any):
    gradients = []
    for checkpointing in (False, True):
        model = small_unet().train()
        if checkpointing:
            model.enable_gradient_checkpointing()
        todome.apply(model, Downsample(2), short_text(SHORT))
        model(**unet_inputs()).sample.square().mean().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*gradients)


@pytest.mark.slow
@needs_hooks_in_graphs
def test_it_is_a_part_of_one_full_graph(short_text: Any, fresh_dynamo: None, tracer: Any):
    model, inputs = mini_unet(), unet_inputs()
    eager = reduced(mini_unet(), inputs, Downsample(2), short_text(SHORT))
    todome.apply(model, Downsample(2), short_text(SHORT))
    compiled = torch.compile(model, fullgraph=True, backend=tracer)
    for _ in range(2):
        torch.testing.assert_close(run(compiled, **inputs), eager, rtol=1e-4, atol=1e-5)
    assert tracer.frame_count == 1


def test_it_says_once_where_it_does_nothing(short_text: Any):
    model = mini_unet()
    todome.apply(model, short_text(TEXT))
    with pytest.warns(UserWarning, match=rf"^ShortText\(tokens={TEXT}\) cuts nothing: no text here is longer\.$"):
        run(model, **unet_inputs())
    run(model, **unet_inputs())  # a second warning would be an error


def test_what_means_nothing_is_refused(short_text: Any, imported: Callable[[str], Any]):
    with pytest.raises(ValueError, match=r"^tokens=0 cannot be used\. Allowed: a whole number of at least 1\. "):
        short_text(0)
    model = small_unet()
    with pytest.raises(ValueError, match=r"^lever=ShortText\(tokens=3\) cannot be used\. Allowed: one lever for text"):
        todome.apply(model, short_text(4), short_text(3))
    net = imported("A new kind of model").PixelNet()
    before = attributes(net)
    with pytest.raises(NothingToReduce, match=r"^target=PixelNet has no attention to text\. Leave ShortText"):
        todome.apply(net, Downsample(2), short_text(4))
    assert attributes(net) == before


@pytest.fixture
def pixel_net(imported: Callable[[str], Any]) -> Any:
    torch.manual_seed(0)
    return imported("A new kind of model").PixelNet().eval()


def pixels(timestep: int = 500) -> dict[str, Any]:
    return {"x": noise(2, 3, 16, 12), "timestep": torch.tensor(timestep)}


@pytest.mark.parametrize("lever", [Downsample(2), Merge(0.5)], ids=["keys", "tokens"])
def test_a_model_that_a_user_describes_is_reduced(pixel_net: Any, lever: Any):
    dense, before = run(pixel_net, **pixels()), attributes(pixel_net)
    patch = todome.apply(pixel_net, lever)
    with recorded(pixel_net, r"to_[qk]$") as seen:
        fewer = run(pixel_net, **pixels())
    queries, keys = (seen[f"holder.block.attention.to_{one}"][0].shape[1] for one in "qk")
    assert (queries, keys) == ((192, 48) if isinstance(lever, Downsample) else (96, 96))
    assert [(level.layers, level.grids) for level in patch.levels] == [(1, {(16, 12): keys})]
    assert not torch.allclose(fewer, dense, atol=1e-5)
    assert torch.equal(run(pickled(pixel_net), **pixels()), fewer)
    todome.remove(pixel_net)
    assert attributes(pixel_net) == before
    assert torch.equal(run(pixel_net, **pixels()), dense)


def test_it_is_dithered(pixel_net: Any):
    """Nobody drives the run: the falling timestep does. Every token is a key once in four steps."""
    todome.apply(pixel_net, Downsample(2))
    with recorded(pixel_net, r"to_[qk]$") as seen:
        for timestep in (900, 600, 300, 0):
            run(pixel_net, **pixels(timestep))
    (queries, *_), keys = (seen[f"holder.block.attention.to_{one}"] for one in "qk")
    rows = [(kept[0][:, None] == queries[0]).all(-1).int().argmax(1).tolist() for kept in keys]
    assert [len(kept) for kept in rows] == [48] * 4
    assert sorted(row for kept in rows for row in kept) == [*range(192)]


def test_it_is_named_where_another_model_is_refused(pixel_net: Any):
    with pytest.raises(NothingToReduce, match=r"Allowed: UNet2DConditionModel .*; PixelNet\. Leave it dense\.$"):
        todome.apply(nn.Linear(2, 2))


def test_nothing_of_the_examples_stays_registered():
    assert not {"ShortText", "PixelNet"} & {getattr(kind, "__name__", kind) for kind in [*HANDLERS, *FINDERS]}
    assert not {*files("A new lever"), *files("A new kind of model")} & {*sys.modules}
