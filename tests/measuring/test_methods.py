"""Names of methods: what each means, what is refused; the packages of others are put on, and taken off."""

import re
import sys

import pytest
import torch
from zoo import draw, plan_of, planned, small_unet, tiny_pipeline, unet_inputs

from todome import Downsample, Merge, Plan
from todome.levers.layers import PlannedLayer
from todome.levers.lever import Piece
from todome.tools.measuring.methods import EXAMPLES, Method, is_windowed, method_named, methods_named, plan_parts
from todome.tools.measuring.peers import CaTome, DeepCache, Tomesd

NAMED = {
    "dense": {},
    "dense:20": {"steps": 20},
    "todome:auto": {"reduction": Downsample("auto")},
    "todome:2": {"reduction": Downsample(2)},
    "todome:4,2": {"reduction": Downsample((4, 2))},
    "todome:2,stop=0.8": {"reduction": Downsample(2, stop=0.8)},
    "todome:2,phase=random": {"reduction": Downsample(2, phase="random")},
    "todome:2, start=0.1, seed=3": {"reduction": Downsample(2, start=0.1, seed=3)},
    "todo:2": {"reduction": Downsample(2, phase="fixed")},
    "tome": {"reduction": Merge(0.5)},
    "tome:0.5,0.3": {"reduction": Merge((0.5, 0.3))},
    "tome:0.6,stride=4": {"reduction": Merge(0.6, stride=(4, 4))},
    "tome:0.89,stride=3": {"reduction": Merge(8 / 9, stride=(3, 3))},
    "tomesd:0.5": {"peers": (Tomesd(0.5),)},
    "ca-tome:0.7": {"peers": (CaTome(0.7),)},
    "deepcache": {"peers": (DeepCache(3),)},
    "todome:2+deepcache": {"reduction": Downsample(2), "peers": (DeepCache(3),)},
    "deepcache:2+todome:4,2": {"reduction": Downsample((4, 2)), "peers": (DeepCache(2),)},
}


@pytest.mark.parametrize("name", NAMED)
def test_what_a_name_means(name):
    assert method_named(name) == Method(name, **NAMED[name])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", f"Allowed: {EXAMPLES}."),
        ("fast", f"Allowed: {EXAMPLES}."),
        ("todome:2+todo:2", f"Allowed: {EXAMPLES}."),
        ("deepcache:3,2", f"Allowed: {EXAMPLES}."),
        ("todome:two", "Allowed: numbers after the colon"),
        ("dense:many", "Allowed: numbers after the colon"),
        ("todome:2,step=3", "Allowed: the fields factor, phase, seed, start, stop."),
        ("todome:2+dense:20", "Allowed: dense:STEPS on its own."),
    ],
)
def test_names_that_mean_nothing(name, told):
    with pytest.raises(ValueError, match=rf"^method='{re.escape(name)}' cannot be used\. {re.escape(told)}"):
        method_named(name)


def test_dense_comes_first_and_none_comes_twice():
    assert [method.name for method in methods_named(["todo:2", "dense", "todo:2"])] == ["dense", "todo:2"]


@pytest.mark.parametrize("names", [[], ["dense"]])
def test_dense_alone_is_compared_with_nothing(names):
    with pytest.raises(ValueError, match=r"^methods=.* Allowed: dense and at least one more\."):
        methods_named(names)


def flat(*factors: float | None) -> Plan:
    layers = {f"up.1.{place}": PlannedLayer.flat(factor, 64, (8,)) for place, factor in enumerate(factors)}
    return plan_of(layers, seed=3)


def test_a_run_with_a_plan_has_parts_in_which_nothing_changes():
    first = PlannedLayer((Piece(0.25, 4), Piece(0.75, None), Piece(1.0, 2)), 64, (8,))
    layers = {"up.1.0": first, "up.1.1": planned(3, 64, (8,), later=2, switch=0.75)}
    assert plan_parts(plan_of(layers, seed=3)) == [(0.25, flat(4, 3)), (0.5, flat(None, 3)), (0.25, flat(2, 2))]
    for whole in (flat(2, None), Plan((Merge(0.5),))):
        assert plan_parts(whole) == [(1.0, whole)]


def test_what_is_off_in_some_steps():
    assert not any(map(is_windowed, (None, Downsample(2), flat(2))))
    assert all(map(is_windowed, (Merge(0.5, start=0.1), flat(2).within(stop=0.9))))


@pytest.mark.parametrize("peer", [Tomesd(0.5), CaTome(0.0), DeepCache(2)], ids=lambda peer: type(peer).__name__)
def test_a_pipeline_draws_otherwise_and_is_left_as_it_was(peer):
    pipe = tiny_pipeline(unet=small_unet())
    before = draw(pipe, steps=4)
    with peer.on(pipe) as kinds:
        assert sum(kind.share for kind in kinds) == pytest.approx(1)
        other = draw(pipe, steps=4)
    assert not torch.equal(other, before)
    assert torch.equal(draw(pipe, steps=4), before)


def test_ca_tome_matches_anew_in_13_of_50_steps(monkeypatch):
    """On a bare UNet every call of the first kind matches, and none of the second."""
    unet, matched = small_unet(), []
    sort = torch.Tensor.argsort
    with CaTome(0.0).on(unet) as (anew, cached), torch.no_grad():
        monkeypatch.setattr(torch.Tensor, "argsort", lambda *a, **k: matched.append(1) or sort(*a, **k))
        counts = []
        for kind in (anew, anew, cached, cached):
            kind.begin()
            unet(*unet_inputs().values())
            counts.append(len(matched))
    assert counts == [6, 12, 12, 12]  # twice in each of three layers
    assert anew.share == 13 / 50
    assert cached.share == 37 / 50


def test_deepcache_skips_the_deep_part_of_a_bare_unet():
    unet, calls = small_unet(), []
    unet.mid_block.resnets[0].register_forward_hook(lambda *_: calls.append(1))
    with DeepCache(3).on(unet) as (full, cached), torch.no_grad():
        counts = []
        for kind in (full, cached, cached, full):
            kind.begin()
            unet(*unet_inputs().values())
            counts.append(len(calls))
    assert counts == [1, 1, 1, 2]
    assert full.share == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("peer", "module"), [(Tomesd(), "tomesd"), (CaTome(), "ca_tome.patch"), (DeepCache(), "DeepCache")]
)
def test_a_package_that_is_missing(monkeypatch, peer, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"needs {module}, which is missing. Install it: pip install "):
        peer.on(small_unet()).__enter__()


def test_models_that_the_others_do_not_know():
    with (
        pytest.raises(ValueError, match="Measure it with dense, todome, todo and tome"),
        Tomesd().on(torch.nn.Identity()),
    ):
        pass
