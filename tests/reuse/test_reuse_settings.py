"""Settings of reuse over steps: what is not given is filled in, what contradicts itself is refused, all comes back."""

import copy
import dataclasses
import json
import pickle
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from todome import Downsample, Merge, Plan, Reuse

SOME = [
    Reuse(),
    Reuse(keep=40),
    Reuse(keep=44.123456789012, guidance=False),
    Reuse(every=1),
    Reuse(warmup=0),
    Reuse(every=3, warmup=1 / 3, stages=0, guidance=False),
]
GIVEN = st.fixed_dictionaries(
    {},
    optional={
        "every": st.integers(1, 1000),
        "warmup": st.floats(0, 1),
        "stages": st.integers(0, 1000),
        "guidance": st.booleans(),
    },
)
ANY = st.one_of(st.builds(dict, keep=st.floats(20, 80), guidance=st.booleans()), GIVEN)


def test_what_is_not_given_is_filled_in():
    assert Reuse() == Reuse(None) == Reuse(45) == Reuse(keep=45.0)
    assert Reuse(every=2) == Reuse(warmup=0.3) == Reuse(stages=1) == Reuse(every=2, warmup=0.3, stages=1)
    assert Reuse() != Reuse(every=2)
    assert Reuse(every=2).keep is None
    assert (Reuse().every, Reuse().warmup, Reuse().stages) == (None, None, None)


@given(settings=ANY)
def test_settings_come_back_whole(settings):
    lever = Reuse(**settings)
    assert eval(repr(lever)) == lever
    assert copy.deepcopy(lever) == pickle.loads(pickle.dumps(lever)) == dataclasses.replace(lever) == lever
    assert len({lever, copy.copy(lever), eval(repr(lever))}) == 1


@pytest.mark.parametrize(
    ("lever", "shown"),
    [
        (Reuse(), "Reuse(keep=45)"),
        (Reuse(keep=42.5, guidance=False), "Reuse(keep=42.5, guidance=False)"),
        (Reuse(every=3), "Reuse(every=3, warmup=0.3, stages=1)"),
        (Reuse(warmup=1, guidance=False), "Reuse(every=2, warmup=1, stages=1, guidance=False)"),
    ],
)
def test_settings_show_what_holds(lever, shown):
    assert repr(lever) == str(lever) == shown


def test_one_setting_can_be_replaced():
    by_hand = Reuse(every=3, warmup=0.5)
    assert dataclasses.replace(by_hand, guidance=False) == Reuse(every=3, warmup=0.5, guidance=False)
    assert dataclasses.replace(by_hand, every=2) == Reuse(every=2, warmup=0.5)
    assert dataclasses.replace(by_hand, every=None) == Reuse(warmup=0.5)
    assert dataclasses.replace(Reuse(), keep=40) == Reuse(keep=40)
    assert dataclasses.replace(Reuse(), keep=None, every=2) == Reuse(every=2)
    with pytest.raises(ValueError, match=r"^keep=40 cannot be used\..* Leave every and warmup and stages out, or keep"):
        dataclasses.replace(by_hand, keep=40)
    with pytest.raises(dataclasses.FrozenInstanceError):
        by_hand.every = 4  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("other", [{"every": 2}, {"warmup": 0.3}, {"stages": 1}, {"every": 1, "stages": 0}], ids=str)
def test_how_close_and_by_hand_exclude_each_other(other):
    names = " and ".join(other)
    text = f"keep=40 cannot be used. Allowed: None beside {names}. Leave {names} out, or keep."
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        Reuse(keep=40, **other)


def test_numbers_of_other_kinds_are_those_of_python():
    close: Any = np.float32(42)
    lever = Reuse(keep=close)
    assert type(lever.keep) is float
    others: dict[str, Any] = {"every": np.int64(3), "warmup": Fraction(1, 4), "stages": np.int8(2)}
    by_hand = Reuse(**others)
    assert [type(value) for value in (by_hand.every, by_hand.warmup, by_hand.stages)] == [int, float, int]
    json.dumps(dataclasses.asdict(by_hand))


@pytest.mark.parametrize("field", ["keep", "every", "warmup", "stages"])
@pytest.mark.parametrize("huge", [10**400, 10**5000, -(10**400)], ids=["large", "larger", "negative"])
def test_numbers_that_are_too_large_are_refused(field, huge):
    with pytest.raises(ValueError, match=f"^{field}=.* cannot be used"):
        Reuse(**{field: huge})


@given(field=st.sampled_from(["keep", "every", "warmup", "stages"]), value=st.integers() | st.floats() | st.text())
def test_settings_are_checked_or_refused_by_their_name(field, value):
    lever = made_or_refused({field: value})
    if isinstance(lever, str):
        assert lever.startswith(f"{field}=")
    else:
        assert getattr(lever, field) == value
        assert eval(repr(lever)) == lever


def made_or_refused(settings: dict[str, Any]) -> Reuse | str:
    """The lever, or why there is none."""
    try:
        return Reuse(**settings)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("lever", SOME, ids=str)
def test_a_plan_with_reuse_comes_back_from_its_file(tmp_path, lever):
    plan = Plan((Downsample(2), lever), {"steps": 25}, {"psnr": 45.2})
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    saved = json.loads((tmp_path / "plan.json").read_text())["levers"]
    assert None not in saved["reuse"].values()
    assert saved["reuse"].keys() <= {"keep", "every", "warmup", "stages", "guidance"}
    (tmp_path / "plan.json").write_text(
        json.dumps(
            {"todome_plan": 2, "levers": {"reuse": dataclasses.asdict(lever)}}
        )  # with null, as others may write it
    )
    assert Plan.load(tmp_path / "plan.json").levers == (lever,)
    assert plan.within(0.2, 0.8).levers[1] == lever  # it has no window


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"keep": 40, "every": 2}, "keep=40 cannot be used"),
        ({"keep": "45"}, "keep='45' cannot be used"),
        ({"every": 0}, "every=0 cannot be used"),
        ({"interval": 3}, "reuse='interval' cannot be used. Allowed: keep, every, warmup, stages, guidance"),
        ([], "reuse=[] cannot be used"),
    ],
    ids=str,
)
def test_a_plan_whose_reuse_is_broken_is_refused_in_a_sentence(tmp_path, settings, said):
    (tmp_path / "plan.json").write_text(json.dumps({"todome_plan": 2, "levers": {"reuse": settings}}))
    with pytest.raises(ValueError, match=r"plan\.json is not a plan: ") as error:
        Plan.load(tmp_path / "plan.json")
    assert said in str(error.value)


def test_reuse_is_of_a_family_of_its_own():
    assert Plan((Reuse(), Merge(0.5))).levers == (Reuse(), Merge(0.5))
    with pytest.raises(ValueError, match=r"^lever=Reuse\(keep=40\) cannot be used\. Allowed: one lever for steps"):
        Plan((Reuse(), Reuse(keep=40)))
