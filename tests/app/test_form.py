"""What the controls say becomes settings or a sentence; nothing that a page would not send gets through."""

import math

import pytest
from small_page import LIMITS, SMALL

from todome import Downsample, Merge
from todome.tools.app.form import Form
from todome.tools.app.limits import Limits, default_limits
from todome.tools.app.presets import first_form, presets
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
    settings = form.settings(WITHIN, base)
    size = {"size": (64, 96), "steps": 2, "seed": 5, "guidance": 3.0}
    assert settings == Settings("a rose", **vars_of(base), **size, reduction=reduction)
    assert type(settings.steps) is int


def vars_of(base: Settings) -> dict[str, str]:
    return {"model": base.model, "device": base.device, "dtype": base.dtype}


SIDES, DIGITS = "a whole number from 64 to 128", "Write it in digits"
CHOOSE = "Choose one of them"


@pytest.mark.parametrize(
    ("field", "value", "allowed", "remedy"),
    [
        ("width", 4096, SIDES, "The nearest: 128"),
        ("height", 0, SIDES, "The nearest: 64"),
        ("height", 64.5, SIDES, "The nearest: 64"),
        ("width", "64", SIDES, DIGITS),
        ("steps", True, "a whole number from 1 to 40", DIGITS),
        ("steps", 41, "a whole number from 1 to 40", "The nearest: 40"),
        ("steps", None, "a whole number from 1 to 40", DIGITS),
        ("guidance", math.nan, "a number from 0 to 30", DIGITS),
        ("guidance", math.inf, "a number from 0 to 30", "The nearest: 30"),
        ("seed", -1, f"a whole number from 0 to {2**53 - 1}", "The nearest: 0"),
        ("factor", 99, "a number from 1 to 16", "The nearest: 16"),
        ("factor2", [2], "a number from 1 to 16", DIGITS),
        ("auto", "yes", "True or False", "Set or clear the box"),
        ("stop", 2, "a number from 0 to 1", "The nearest: 1"),
        ("method", "/etc/passwd", "todome, ToDo, ToMe, dense", CHOOSE),
        ("scheduler", "../x", ", ".join(SCHEDULERS), CHOOSE),
        ("scheduler", ["ddim"], ", ".join(SCHEDULERS), CHOOSE),
        ("prompt", None, "a text", "Write it as words"),
        ("prompt", {"path": "/etc/passwd"}, "a text", "Write it as words"),
        ("prompt", "a\0b", "characters that can be read", "Type it anew"),
        ("prompt", "\ud800", "characters that can be read", "Type it anew"),
    ],
)
def test_what_is_refused(field, value, allowed, remedy):
    with pytest.raises(ValueError, match="cannot be used") as error:
        WEB._replace(**{field: value}).settings(WITHIN, Settings())
    assert str(error.value) == f"{NAMES.get(field, field)}={value!r} cannot be used. Allowed: {allowed}. {remedy}."


def test_a_long_text_is_not_quoted_whole():
    with pytest.raises(ValueError, match="cannot be used") as error:
        WEB._replace(negative="x" * 81).settings(WITHIN, Settings())
    allowed = "at most 80 characters, and this has 81"
    assert str(error.value) == f"negative='{'x' * 40}...' cannot be used. Allowed: {allowed}. Shorten it."


NAMES = {"factor2": "factor of level 2"}


def test_limits_of_machines():
    assert default_limits(reachable_device("cpu")) == Limits(side=512, steps=50)
    with pytest.raises(ValueError, match=r"^side=8 cannot be used. Allowed: a whole number from 64 to 1048576\."):
        Limits(side=8)


def test_presets_within_the_limits(flowers):
    offered = {limit: presets("todome-flowers", flowers, Limits(side=limit)) for limit in (128, 512, 2048)}
    assert [[preset.size[0] for preset in some] for some in offered.values()] == [
        [],
        [256, 512],
        [256, 512, 1024, 1536, 2048],
    ]
    for preset, factor, ratio in zip(offered[2048][2:], (2, 3, 4), (0.75, 8 / 9, 0.9375), strict=True):
        form = Form(width=64)._replace(**preset.sets)
        wide = Limits(side=2048)
        assert form.settings(wide, Settings()).reduction == Downsample(factor)
        merged = form._replace(method="ToMe").settings(wide, Settings()).reduction
        assert merged == Merge(ratio, stride=(factor, factor))


@pytest.mark.parametrize("limits", [WITHIN, Limits(), Limits(side=2048, steps=1)])
def test_what_the_page_opens_with_can_be_drawn(flowers, limits):
    form = first_form("todome-flowers", flowers, limits)
    assert form.settings(limits, Settings()).reduction == Downsample(2)
    assert first_form("other", flowers, limits).settings(limits, Settings())
