"""What the controls say becomes settings or a sentence; nothing that a page would not send gets through."""

import math

import pytest
from small_page import LIMITS, OFFER, SMALL

from todome import Downsample, Merge
from todome.tools.app.form import Form, Offer
from todome.tools.app.limits import Limits, default_limits
from todome.tools.app.presets import (
    PACES,
    automatic_factor,
    explained,
    first_form,
    pace_of,
    pace_sets,
    sizes,
    token_pixels,
)
from todome.tools.devices import reachable_device
from todome.tools.generate import Settings
from todome.tools.schedulers import SCHEDULERS

WITHIN = Limits(**LIMITS)
WEB = SMALL._replace(height=96.0, steps=2.0, seed=5.0)  # as a browser sends numbers


@pytest.mark.parametrize(
    ("form", "reduction"),
    [
        (WEB, Downsample(2)),
        (WEB._replace(factor=1.5, factor2=2.0, start=0.25, stop=0.5), Downsample((1.5, 2), start=0.25, stop=0.5)),
        (WEB._replace(method="ToDo", auto=True), Downsample("auto", phase="fixed")),
        (WEB._replace(method="ToMe", ratio=0.8, stride="3"), Merge(0.8, stride=(3, 3))),
        (WEB._replace(method="dense", factor="nonsense"), None),
    ],
)
def test_what_controls_mean(form, reduction):
    base = Settings(model="model", device="cpu", dtype="float32")
    settings = form._replace(model="").settings(WITHIN, base, Offer(("model",)))
    size = {"size": (64, 96), "steps": 2, "seed": 5, "guidance": 3.0}
    assert settings == Settings("a rose", **vars_of(base), **size, reduction=reduction)
    assert type(settings.steps) is int


def vars_of(base: Settings) -> dict[str, str]:
    return {"model": base.model, "device": base.device, "dtype": base.dtype}


SIDES, STEPS, DIGITS = "a whole number from 64 to 128", "a whole number from 1 to 40", "Write it in digits"
CHOOSE, SCHEDULED = "Choose one of them", f"one of {', '.join(SCHEDULERS)}"
READABLE = "made of characters that can be read"
NAMES = {
    "factor2": "Factor of level 2",
    "auto": "Automatic factor",
    "count": "Pictures",
    "negative": "Negative prompt",
    "lora": "LoRA",
    "weight": "LoRA weight",
}


@pytest.mark.parametrize(
    ("field", "value", "needed", "remedy"),
    [
        ("width", 4096, SIDES, "Try 128"),
        ("height", 0, SIDES, "Try 64"),
        ("height", 64.5, SIDES, "Try 64"),
        ("width", "64", SIDES, DIGITS),
        ("steps", True, STEPS, DIGITS),
        ("steps", 41, STEPS, "Try 40"),
        ("steps", None, STEPS, DIGITS),
        ("guidance", math.nan, "a number from 0 to 30", DIGITS),
        ("guidance", math.inf, "a number from 0 to 30", "Try 30"),
        ("seed", -1, f"a whole number from 0 to {2**53 - 4}", "Try 0"),
        ("count", 5, "a whole number from 1 to 4", "Try 4"),
        ("factor", 99, "a number from 1 to 16", "Try 16"),
        ("factor2", [2], "a number from 1 to 16", DIGITS),
        ("auto", "yes", "on or off", "Set or clear the box"),
        ("stop", 2, "a number from 0 to 1", "Try 1"),
        ("method", "/etc/passwd", "one of todome, ToDo, ToMe, plan, dense", CHOOSE),
        ("scheduler", "../x", SCHEDULED, CHOOSE),
        ("scheduler", ["ddim"], SCHEDULED, CHOOSE),
        ("model", "/etc", "one of todome-flowers", CHOOSE),
        ("lora", "../secret.safetensors", "one of rose.safetensors", CHOOSE),
        ("prompt", None, "a text", "Write it as words"),
        ("prompt", {"path": "/etc/passwd"}, "a text", "Write it as words"),
        ("prompt", "a\0b", READABLE, "Type it anew"),
        ("prompt", "\ud800", READABLE, "Type it anew"),
    ],
)
def test_what_is_refused(field, value, needed, remedy):
    with pytest.raises(ValueError, match="does not work") as error:
        WEB._replace(**{field: value}).order(WITHIN, Settings(), OFFER._replace(loras=("rose.safetensors",)))
    name = NAMES.get(field, field.capitalize())
    assert str(error.value) == f"{name} {value!r} does not work: it must be {needed}. {remedy}."


def test_a_long_text_is_not_quoted_whole():
    with pytest.raises(ValueError, match="does not work") as error:
        WEB._replace(negative="x" * 81).settings(WITHIN, Settings(), OFFER)
    needed = "at most 80 characters long, and it has 81"
    assert str(error.value) == f"Negative prompt '{'x' * 40}...' does not work: it must be {needed}. Shorten it."


def test_what_a_run_draws():
    several = WEB._replace(count=2).order(WITHIN, Settings(), OFFER)
    drawn = [(one.seed, one.reduction) for one in several.pictures()]
    assert drawn == [(5, None), (5, Downsample(2)), (6, None), (6, Downsample(2))]
    everything = WEB._replace(count=2, method="dense").order(WITHIN, Settings(), OFFER, compare=True)
    assert [one.reduction for one in everything.pictures()] == [
        None,
        Downsample(2),
        Downsample(2, phase="fixed"),
        Merge(0.5),
    ]
    offer = Offer(("todome-flowers", "other"), ("rose.safetensors",))
    order = WEB._replace(model="other", lora="rose.safetensors", weight=0.5).order(WITHIN, Settings(), offer)
    assert (order.alone[0].model, order.extras.lora, order.extras.weight) == ("other", "rose.safetensors", 0.5)


def test_parts_that_the_operator_named_are_those_of_the_first_model():
    base, offer = Settings(loras=("style.safetensors",), vae="vae"), Offer(("todome-flowers", "other"), ())
    first, other = (WEB._replace(model=model).settings(WITHIN, base, offer) for model in ("", "other"))
    assert (first.loras, first.vae) == (("style.safetensors",), "vae")
    assert (other.loras, other.vae) == ((), None)


def test_limits_of_machines():
    assert default_limits(reachable_device("cpu")) == Limits(side=512, steps=50)
    with pytest.raises(ValueError, match=r"^Side 8 does not work: it must be a whole number from 64 to 1048576\."):
        Limits(side=8)


def test_sizes_within_the_limits(flowers):
    offered = {limit: sizes("todome-flowers", flowers, Limits(side=limit)) for limit in (128, 512, 2048)}
    assert [[preset.size[0] for preset in some] for some in offered.values()] == [
        [],
        [256, 512],
        [256, 512, 768, 1024, 1536, 2048],
    ]


def test_from_closest_to_fastest(flowers):
    pixels = token_pixels(flowers)
    assert [automatic_factor((side, side), pixels) for side in (256, 512, 768)] == [1, 2, 3]
    for auto, close in ((1, Downsample(2)), (2, Downsample("auto")), (None, Downsample("auto"))):
        chosen = {pace: Form()._replace(**pace_sets(pace, auto)) for pace in PACES}
        assert {pace: pace_of(form, auto) for pace, form in chosen.items()} == {pace: pace for pace in PACES}
        found = [form.reduction() for form in chosen.values()]
        assert found == [Downsample(2, stop=0.8), close, Downsample(3), Downsample((4, 2))]
    assert pace_of(Form(method="ToDo"), 1) is None
    assert pace_of(Form(steps=3), 1) == "close"  # of steps it says nothing


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        (Form(), "todome: attention looks at a quarter of the picture, a different one at every step."),
        (
            Form(method="ToDo", factor=3, factor2=2, stop=0.8),
            "ToDo: attention looks at a ninth of the picture, always the same one. Deeper layers look at less, too. "
            "From 0% to 80% of the steps; full attention otherwise.",
        ),
        (Form(method="ToMe"), "ToMe: 50% of the tokens are merged with others that are alike."),
        (
            Form(method="dense"),
            "Full attention alone: every token looks at every other one. There is nothing to compare it with.",
        ),
    ],
)
def test_settings_are_explained(form, sentence):
    assert explained(form.reduction(), 1) == sentence


@pytest.mark.parametrize("limits", [WITHIN, Limits(), Limits(side=2048, steps=1)])
def test_what_the_page_opens_with_can_be_drawn(flowers, limits):
    form = first_form("todome-flowers", flowers, limits)
    assert form.settings(limits, Settings(), OFFER).reduction == Downsample(2)
    assert first_form("other", flowers, limits).settings(limits, Settings(), Offer(("other",)))
