"""What the controls say becomes settings or a sentence; nothing that a page would not send gets through."""

import math
from contextlib import suppress

import pytest
from asking import OFFER, SMALL
from hypothesis import given
from hypothesis import strategies as st
from zoo import plan_of, planned

from todome import Downsample, Merge
from todome.tools.app.form import Form
from todome.tools.app.presets import PACES, automatic_factor, first_form, pace_sets, token_pixels
from todome.tools.app.tuning import TuneForm
from todome.tools.generate import Settings
from todome.tools.tuning.goal import Goal

WEB = SMALL._replace(height=96.0, steps=2.0, seed=5.0)  # as a browser sends numbers
PLAN = plan_of({"up.1.0": planned(2, 64, (8, 8))})


@pytest.mark.parametrize(
    ("form", "reduction"),
    [
        (WEB, Downsample(2)),
        (WEB._replace(factor=1.5, factor2=2.0, start=0.25, stop=0.5), Downsample((1.5, 2), start=0.25, stop=0.5)),
        (WEB._replace(method="ToDo", auto=True), Downsample("auto", phase="fixed")),
        (WEB._replace(method="ToMe", ratio=0.8, stride="3"), Merge(0.8, stride=(3, 3))),
        (WEB._replace(method="plan"), PLAN),
        (WEB._replace(method="dense", factor="nonsense"), None),
    ],
)
def test_what_controls_mean(form, reduction):
    assert form.reduction(PLAN) == reduction
    settings = form.settings(OFFER)
    size = {"size": (64, 96), "steps": 2, "seed": 5, "guidance": 3.0}
    assert settings == Settings("a rose", **size, device="cpu", dtype="float32")
    assert type(settings.steps) is int


numbers = st.floats() | st.integers() | st.sampled_from([2**53, -(2**70), math.nan, math.inf, True, 1e308])
texts = st.text(max_size=20) | st.sampled_from(["a\0b", "\ud800", "x" * 1001, "../../etc/passwd"])
values = st.none() | st.booleans() | numbers | texts | st.lists(numbers, max_size=2) | st.dictionaries(texts, texts)


@given(st.sampled_from(Form._fields), values, st.booleans())
def test_whatever_is_sent_is_drawn_or_refused(field, value, compare):
    form = WEB._replace(**{field: value})
    order = None
    with suppress(ValueError):  # in a sentence
        order = form.order(OFFER, compare=compare)
    if order is None:
        return
    for settings in order.pictures():
        assert settings.size is not None
        assert max(settings.size) <= OFFER.side
        assert settings.steps in range(1, OFFER.steps + 1)
        assert len(settings.prompt) <= 1000


def test_what_a_run_draws():
    several = WEB._replace(count=2).order(OFFER)
    drawn = [(one.seed, one.reduction) for one in several.pictures()]
    assert drawn == [(5, None), (5, Downsample(2)), (6, None), (6, Downsample(2))]
    everything = WEB._replace(count=2, method="dense").order(OFFER, compare=True)
    ways = [one.reduction for one in everything.pictures()]
    assert ways == [None, Downsample(2), Downsample(2, phase="fixed"), Merge(0.5)]


def test_from_closest_to_fastest(flowers):
    pixels = token_pixels(flowers)
    for side, auto in {256: 1, 512: 2, 768: 3, "wide": 1, None: 1, math.nan: 1}.items():
        assert automatic_factor(Form(width=side, height=side), pixels) == auto
    for auto, close in ((1, Downsample(2)), (2, Downsample("auto"))):
        found = [Form()._replace(**pace_sets(pace, auto)).reduction() for pace in PACES]
        assert found == [Downsample(2, stop=0.8), close, Downsample(3), Downsample((4, 2))]


@pytest.mark.parametrize("offer", [OFFER, OFFER._replace(side=64, steps=1), OFFER._replace(side=2048)])
def test_what_the_page_opens_with_can_be_drawn(flowers, offer):
    assert first_form(flowers, offer).order(offer).reductions == (Downsample(2),)
    other = offer._replace(base=Settings(model="other"))
    assert first_form(flowers, other).order(other).alone[0].model == "other"


def test_what_a_tuning_is_for():
    assert TuneForm().order(SMALL, OFFER).goal == Goal(40)
    assert TuneForm(aim="fast").order(SMALL, OFFER).goal == Goal(faster=1.2)
    assert TuneForm(prompts=" a \n\n b ").order(SMALL, OFFER).prompts == ("a", "b")
    for wrong in ({"aim": "far"}, {"keep": 400}, {"faster": None}, {"minutes": 10**9}, {"prompts": "one"}):
        with pytest.raises(ValueError, match=r"cannot be used\. Allowed: |Prompts are missing: write at least two"):
            TuneForm(**wrong).order(SMALL, OFFER)
