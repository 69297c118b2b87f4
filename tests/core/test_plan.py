"""Plans: validated, saved and read whole, bound to one architecture, scaled by the keys that are left."""

import copy
import json
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from todome import Downsample, Merge, Plan
from todome.plan import PlannedLayer

LAYERS = {
    "down.1.0": PlannedLayer(2, 2, 4096, (64, 128)),
    "up.1.0": PlannedLayer(4, 2, 4096, (64, 128)),
}
MODEL = [SimpleNamespace(net="unet", name=name, level=1, width=layer.width) for name, layer in LAYERS.items()]


def test_a_plan_comes_back_from_its_file(tmp_path):
    plan = Plan(LAYERS, switch=0.5, stop=0.9, seed=3, measured={"psnr": 45.2})
    plan.save(tmp_path / "plan.json")
    back = Plan.load(tmp_path / "plan.json")
    assert back == plan
    assert back.measured == plan.measured
    assert hash(back) == hash(plan)
    assert copy.deepcopy(plan) == plan == pickle.loads(pickle.dumps(plan))


def test_a_plan_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "plan.json" / "kept").mkdir(parents=True)
    with pytest.raises(OSError, match=r"plan\.json"):
        Plan(LAYERS).save(tmp_path / "plan.json")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_many_threads_save_a_plan_in_one_file(tmp_path):
    plans = [replace(Plan(LAYERS), seed=seed) for seed in range(100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda plan: plan.save(tmp_path / "plan.json"), plans))
    assert Plan.load(tmp_path / "plan.json") in plans
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def factors_of(plan: Plan) -> list[list[float]]:
    return [[setting.factor for setting in parts] for parts in plan.settings(MODEL)]


def test_the_factor_falls_at_the_switch_and_only_where_there_is_another():
    plan = Plan(LAYERS, switch=0.3)
    assert plan.falls
    assert plan.windowed
    assert [plan.is_late(step, 10) for step in range(10)] == [False] * 3 + [True] * 7
    assert factors_of(plan) == [[2, 2], [4, 2]]  # that of now comes before that of later
    assert factors_of(Plan(LAYERS)) == [[2], [4]]
    flat = Plan({"up.1.0": PlannedLayer(2, 2, 64, (8,))}, switch=0.3)
    assert not flat.falls
    assert not flat.windowed
    assert not flat.is_late(9, 10)


def test_another_size_is_left_with_as_many_keys_and_says_so():
    plan = Plan(LAYERS)
    (first,), (second,) = plan.settings(MODEL)
    assert plan.kept_count((64, 64), first) == 1024
    assert plan.kept_count((64, 64), second) == 256
    assert plan.kept_count((128, 128), first) == 1024
    assert plan.kept_count((16, 16), first) == 256  # fewer tokens than keys: dense
    plan.build_table((64, 64), first, 0)  # says nothing where it was measured
    with pytest.warns(UserWarning, match="another size; here are 4 times as many tokens.*was not measured"):
        plan.build_table((128, 128), first, 0)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (MODEL[:1], "2 layers and this model 1; the channels of up.1.0 are (64, 128) in the plan and missing"),
        (
            [MODEL[0], SimpleNamespace(net="unet", name="up.1.0", level=1, width=(64, 99))],
            "channels of up.1.0 are (64, 128) in the plan and (64, 99) in the model",
        ),
        (
            [*MODEL, SimpleNamespace(net="unet", name="mid.2.0", level=2, width=(1,))],
            "mid.2.0 are missing in the plan and (1,)",
        ),
    ],
)
def test_another_architecture_is_refused_by_the_layer_that_differs(model, said):
    with pytest.raises(ValueError, match="for another model") as error:
        Plan(LAYERS).settings(model)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: "no JSON", "cannot be read"),
        (lambda plan: json.dumps({"factor": 2}), "it is something else"),
        (lambda plan: json.dumps(plan | {"todome_plan": 9}), "its format is 9, and this version of todome reads 1"),
        (lambda plan: json.dumps({k: v for k, v in plan.items() if k != "layers"}), "missing or broken ('layers')"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_with_the_reason(tmp_path, change, said):
    path = tmp_path / "plan.json"
    Plan(LAYERS).save(path)
    path.write_text(change(json.loads(path.read_text())))
    with pytest.raises(ValueError, match="is not a plan") as error:
        Plan.load(path)
    assert said in str(error.value)
    assert "todome tune" in str(error.value)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every part of a JSON value is."""
    yield place
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*place, key))


def replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    changed = value.copy()
    changed[place[0]] = replaced(value[place[0]], place[1:], new)
    return changed


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
ANYTHING = st.recursive(LEAVES, lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=3), some))
SAVED: dict[str, Any] = {
    "todome_plan": 1,
    "layers": {"down.1.0": {"factor": 2, "later": 2, "tokens": 4096, "width": [64, 128]}},
    "switch": 0.5,
    "start": 0.0,
    "stop": 1.0,
    "seed": 0,
    "measured": {"psnr": 45.2, "speedup": 1.3, "size": [256, 256], "verdict": "good"},
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans") / "plan.json"


def loaded(file: Path) -> Plan | str:
    """The plan, or why there is none."""
    try:
        return Plan.load(file)
    except ValueError as error:
        return str(error)


HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    "text", [HUGE, "[" * 100_000, '{"todome_plan": ' + "[" * 100_000, "NaN", "\x00", "\x1b[31m"], ids=range(6)
)
def test_a_hostile_file_is_refused_in_a_sentence(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ValueError, match=r"plan\.json is not a plan: "):
        Plan.load(tmp_path / "plan.json")


@pytest.mark.parametrize("old", ['"factor": 2', '"tokens": 4096', '"switch": 1.0', '"psnr": 45', '"seed": 0'])
def test_a_hostile_number_is_refused_in_a_sentence(tmp_path, old):
    Plan({"up.1.0": PlannedLayer(2, 2, 4096, (8,))}, measured={"psnr": 45}).save(tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    assert old in text
    (tmp_path / "plan.json").write_text(text.replace(old, f"{old.split(':')[0]}: -{HUGE}"))
    with pytest.raises(ValueError, match=r"plan\.json is not a plan: "):
        Plan.load(tmp_path / "plan.json")


def test_a_name_is_never_printed_as_it_is():
    with pytest.raises(ValueError, match=r"layers='\\x1b\[31mup\.1\.0' cannot be used"):
        Plan({"\x1b[31mup.1.0": PlannedLayer(2, 2, 4096, (8,))})


def test_a_plan_cannot_be_changed():
    plan = Plan({"up.1.0": PlannedLayer(2, 2, 4096, (8,))}, measured={"psnr": 45})
    mappings: list[Any] = [plan.layers, plan.measured]
    for frozen in mappings:
        with pytest.raises(TypeError, match="cannot be changed"):
            frozen["up.1.0"] = None
    assert copy.deepcopy(plan) == pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize("huge", [10**400, 10**5000, -(10**400)], ids=["large", "larger", "negative"])
def test_numbers_that_are_too_large_are_refused(huge):
    for make in (lambda: Downsample(huge), lambda: Downsample(2, stop=huge), lambda: Merge(huge)):
        with pytest.raises((TypeError, ValueError), match="cannot be used"):
            make()


@given(place=st.sampled_from(list(places(SAVED))), new=ANYTHING)
def test_a_file_with_anything_in_it_is_a_plan_or_is_refused(file, place, new):
    file.write_text(json.dumps(replaced(SAVED, place, new)))
    plan = loaded(file)
    if isinstance(plan, str):
        assert plan.startswith(f"{file} is not a plan: ")
    else:
        assert str(plan).startswith("Plan: ")
        plan.save(file)
        assert loaded(file) == plan


two: Any = "2"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"layers": {}}, "layers={} cannot be used"),
        ({"layers": {"up.1.0": PlannedLayer(0.5, 1, 64, ())}}, "factor=(0.5, 1) cannot be used"),
        ({"layers": {"up.1.0": PlannedLayer(two, 1, 64, ())}}, "factor=('2', 1) cannot be used"),
        ({"layers": {"up.1.0": PlannedLayer(2, 1, 0, ())}}, "tokens of up.1.0=0 cannot be used"),
        (
            {"layers": {"up.1.0": PlannedLayer(2, 1, 64, (8, 0))}},
            "width of up.1.0=(8, 0) cannot be used. Allowed: whole",
        ),
        ({"measured": [45.2]}, "measured=[45.2] cannot be used. Allowed: what was measured, by name"),
        ({"measured": {"psnr": "good"}}, "measured psnr='good' cannot be used. Allowed: a number"),
        ({"measured": {"size": 256}}, "measured size=256 cannot be used. Allowed: width and height in pixels"),
        ({"switch": 1.5}, "switch=1.5 cannot be used"),
        ({"start": 1.5}, "start=1.5 cannot be used"),
        ({"stop": 1.5}, "stop=1.5 cannot be used"),
    ],
    ids=str,
)
def test_bad_fields_are_refused(given: dict[str, Any], said: str):
    with pytest.raises((ValueError, TypeError)) as error:
        Plan(**{"layers": LAYERS, **given})
    assert said in str(error.value)
