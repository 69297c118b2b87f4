"""Names of methods: what each means, what it puts on a model, and what is refused."""

import pytest
from zoo import small_unet

from todome import Downsample, Merge
from todome.hooks.modules import clocks_on
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
    ("name", "title"),
    [
        ("dense", "dense"),
        ("dense:20", "dense, 20 steps"),
        ("dense:1", "dense, 1 step"),
        ("todome:4,2", "todome 4, 2"),
        ("tome:0.89,stride=3", "tome 0.89, stride=3"),
    ],
)
def test_what_a_table_calls_it(name, title):
    assert method_named(name).title == title


KNOWN = f"Allowed: {EXAMPLES}. Join several with +, each setting with a comma."
NUMBERS = f"Allowed: numbers after the colon, as in {EXAMPLES}."


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", f"method='' cannot be used. {KNOWN}"),
        ("fast", f"method='fast' cannot be used. {KNOWN}"),
        ("todome:2+todo:2", f"method='todome:2+todo:2' cannot be used. {KNOWN}"),
        ("deepcache:3,2", f"method='deepcache:3,2' cannot be used. {KNOWN}"),
        ("todome:two", f"method='todome:two' cannot be used. {NUMBERS} 'two' is not a number."),
        ("dense:many", f"method='dense:many' cannot be used. {NUMBERS} 'many' is not a number."),
        (
            "todome:2,step=3",
            "method='todome:2,step=3' cannot be used. Allowed: the fields factor, phase, seed, start, stop. "
            "step is none of them.",
        ),
        (
            "todome:2+dense:20",
            "method='todome:2+dense:20' cannot be used. Allowed: dense:STEPS on its own. "
            "Leave out the rest: it is the control.",
        ),
        (
            "tome:0.9,stride=3",
            "ratio=0.9 cannot be used. Allowed: from 0 to 0.888889 with stride=(3, 3), or one such number per level. "
            "Lower the ratio or use a larger stride.",
        ),
    ],
)
def test_names_that_mean_nothing(name, text):
    with pytest.raises(ValueError, match="cannot be used") as error:
        method_named(name)
    assert str(error.value) == text


def test_dense_comes_first_and_none_comes_twice():
    assert [method.name for method in methods_named(["todo:2", "dense", "todo:2"])] == ["dense", "todo:2"]


@pytest.mark.parametrize("names", [[], ["dense"]])
def test_dense_alone_is_compared_with_nothing(names):
    with pytest.raises(ValueError, match="methods=") as error:
        methods_named(names)
    text = f"methods={names} cannot be used. Allowed: dense and at least one more. Choose from {EXAMPLES}."
    assert str(error.value) == text


def test_a_method_is_on_a_model_and_off_again():
    unet = small_unet()
    with method_named("todome:2").on(unet):
        assert clocks_on(unet)
    assert not clocks_on(unet)
