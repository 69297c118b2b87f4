"""Names of methods: what each means, what it puts on a model, and what is refused."""

import re

import pytest

from todome import Downsample, Merge
from todome.tools.measuring.methods import EXAMPLES, Method, method_named, methods_named
from todome.tools.measuring.peers import CaTome, DeepCache, Tomesd

NAMED = {
    "dense": {},
    "dense:20": {"steps": 20},
    "todome": {"reduction": Downsample("auto")},
    "todome:auto": {"reduction": Downsample("auto")},
    "todome:2": {"reduction": Downsample(2)},
    "todome:1.5": {"reduction": Downsample(1.5)},
    "todome:4,2": {"reduction": Downsample((4, 2))},
    "todome:2,stop=0.8": {"reduction": Downsample(2, stop=0.8)},
    "todome:2,phase=random": {"reduction": Downsample(2, phase="random")},
    "todome:2, start=0.1, seed=3": {"reduction": Downsample(2, start=0.1, seed=3)},
    "todo": {"reduction": Downsample("auto", phase="fixed")},
    "todo:2": {"reduction": Downsample(2, phase="fixed")},
    "tome": {"reduction": Merge(0.5)},
    "tome:0.5": {"reduction": Merge(0.5)},
    "tome:0.5,0.3": {"reduction": Merge((0.5, 0.3))},
    "tome:0.6,stride=4": {"reduction": Merge(0.6, stride=(4, 4))},
    "tome:0.89,stride=3": {"reduction": Merge(8 / 9, stride=(3, 3))},
    "tome:0.94,stride=4": {"reduction": Merge(0.9375, stride=(4, 4))},
    "tomesd:0.5": {"peers": (Tomesd(0.5),)},
    "ca-tome:0.7": {"peers": (CaTome(0.7),)},
    "deepcache": {"peers": (DeepCache(3),)},
    "deepcache:5": {"peers": (DeepCache(5),)},
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


def test_ratios_that_a_stride_cannot_merge():
    with pytest.raises(ValueError, match=r"^ratio=0\.9 cannot be used\. Allowed: from 0 to 0\.888889 with stride"):
        method_named("tome:0.9,stride=3")


def test_dense_comes_first_and_none_comes_twice():
    assert [method.name for method in methods_named(["todo:2", "dense", "todo:2"])] == ["dense", "todo:2"]


@pytest.mark.parametrize("names", [[], ["dense"]])
def test_dense_alone_is_compared_with_nothing(names):
    with pytest.raises(ValueError, match=r"^methods=.* Allowed: dense and at least one more\."):
        methods_named(names)
