"""Plans: validated, saved and read whole, bound to one architecture, scaled by the keys that are left."""

import copy
import json
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zoo import plan_of, planned

from todome import Downsample, Merge, Plan
from todome.hooks.keys import PlannedKeys
from todome.levers.layers import DownsampleLayers, PlannedLayer
from todome.levers.lever import Piece

LAYERS = {
    "down.1.0": planned(2, 4096, (64, 128)),
    "up.1.0": planned(4, 4096, (64, 128), later=2, switch=0.3),
}
MODEL = [SimpleNamespace(net="unet", name=name, level=1, width=layer.width) for name, layer in LAYERS.items()]


def test_a_plan_comes_back_from_its_file(tmp_path):
    layers = DownsampleLayers(LAYERS, stop=0.9, seed=3)
    plan = Plan((layers,), conditions={"steps": 25}, evidence={"psnr": 45.2})
    plan.save(tmp_path / "plan.json")
    back = Plan.load(tmp_path / "plan.json")
    assert back == plan
    assert (back.conditions, back.evidence) == (plan.conditions, plan.evidence)
    assert hash(back) == hash(plan)
    assert copy.deepcopy(plan) == plan == pickle.loads(pickle.dumps(plan))


def test_a_plan_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "plan.json" / "kept").mkdir(parents=True)
    with pytest.raises(OSError, match=r"plan\.json"):
        plan_of(LAYERS).save(tmp_path / "plan.json")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_many_threads_save_a_plan_in_one_file(tmp_path):
    plans = [plan_of(LAYERS, seed=seed) for seed in range(100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda plan: plan.save(tmp_path / "plan.json"), plans))
    assert Plan.load(tmp_path / "plan.json") in plans
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("lever", [Downsample((2, 1.5), "fixed", 0.1, 0.9, 3), Merge((0.5, 0.3), (2, 4), seed=1)])
def test_any_lever_comes_back_from_its_file(tmp_path, lever):
    Plan((lever,)).save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").levers == (lever,)


def parts_of(**window: Any) -> tuple[tuple[float, ...], list[list[float | None]]]:
    parts = DownsampleLayers(LAYERS, **window).parts(MODEL)
    return parts.cuts, [[one and one.factor for one in settings] for settings in parts.settings]


def test_a_run_is_cut_where_a_factor_changes_and_nowhere_else():
    assert parts_of() == ((0.3,), [[2, 2], [4, 2]])
    assert parts_of(stop=0.9) == ((0.3, 0.9), [[2, 2, None], [4, 2, None]])
    assert parts_of(start=0.5) == ((0.5,), [[None, 2], [None, 2]])
    assert parts_of(start=0.2, stop=0.3) == ((0.2, 0.3), [[None, 2, None], [None, 4, None]])
    same = DownsampleLayers({"up.1.0": PlannedLayer((Piece(0.3, 2), Piece(1.0, 2)), 64, (8,))})
    assert same.parts([SimpleNamespace(net="unet", name="up.1.0", level=1, width=(8,))]).cuts == ()


def test_a_step_is_in_the_part_that_it_begins_in():
    parts = DownsampleLayers(LAYERS, stop=0.9).parts(MODEL)
    assert [parts.at(step, 10) for step in range(10)] == [0] * 3 + [1] * 6 + [None]


def test_a_plan_can_be_narrowed():
    plan = plan_of(LAYERS, start=0.1).within(start=0.05, stop=0.8)
    assert [(lever.start, lever.stop) for lever in plan.levers] == [(0.1, 0.8)]


def test_another_size_is_left_with_as_many_keys_and_says_so():
    lever = DownsampleLayers(LAYERS)
    (first, *_), (second, *_) = lever.parts(MODEL).settings
    assert lever.kept_count((64, 64), first) == 1024
    assert lever.kept_count((64, 64), second) == 256
    assert lever.kept_count((128, 128), first) == 1024
    assert lever.kept_count((16, 16), first) == 256  # fewer tokens than keys: dense
    PlannedKeys.build_table(lever, first, (64, 64), 0)  # says nothing where it was measured
    with pytest.warns(UserWarning, match="another size; here are 4 times as many tokens.*was not measured"):
        PlannedKeys.build_table(lever, first, (128, 128), 0)


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
        DownsampleLayers(LAYERS).parts(model)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: "no JSON", "cannot be read"),
        (lambda plan: json.dumps({"factor": 2}), "it is something else"),
        (
            lambda plan: json.dumps(plan | {"todome_plan": 9}),
            "its format is 9, and this version",
        ),
        (lambda plan: json.dumps({k: v for k, v in plan.items() if k != "levers"}), "missing or broken ('levers')"),
        (
            lambda plan: json.dumps(plan | {"guidance": 5}),
            "file='guidance' cannot be used. Allowed: levers",
        ),
        (lambda plan: json.dumps(plan | {"levers": {"skip": {}}}), "levers='skip' cannot be used. Allowed: downsample"),
        (lambda plan: json.dumps(plan | {"conditions": {"moon": 1}}), "conditions='moon' cannot be used"),
        (lambda plan: json.dumps(plan | {"levers": {"merge": {"x": 1}}}), "merge='x' cannot be used"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_with_the_reason(tmp_path, change, said):
    path = tmp_path / "plan.json"
    plan_of(LAYERS).save(path)
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
OLD: dict[str, Any] = {
    "todome_plan": 1,
    "layers": {"down.1.0": {"factor": 2, "later": 4, "tokens": 4096, "width": [64, 128]}},
    "switch": 0.5,
    "start": 0.0,
    "stop": 1.0,
    "seed": 0,
    "measured": {"psnr": 45.2, "speedup": 1.3, "size": [256, 256], "verdict": "good"},
}
SAVED: dict[str, Any] = {
    "todome_plan": 2,
    "levers": {
        "layers": {
            "layers": {"down.1.0": {"pieces": [[0.5, 2], [1.0, None]], "tokens": 4096, "width": [64, 128]}},
            "start": 0.0,
            "stop": 1.0,
            "seed": 0,
        }
    },
    "conditions": {"size": [256, 256], "steps": 25},
    "evidence": {"psnr": 45.2, "speedup": 1.3, "verdict": "good"},
}


def test_a_plan_of_the_first_schema_still_loads(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(OLD))
    plan = Plan.load(tmp_path / "plan.json")
    assert plan.layers == {"down.1.0": planned(2, 4096, (64, 128), later=4)}
    assert plan.conditions == {"size": [256, 256]}
    assert plan.evidence == {"psnr": 45.2, "speedup": 1.3, "verdict": "good"}


@pytest.mark.parametrize(("switch", "factor"), [(0, 4), (1, 2)])
def test_a_switch_at_an_end_of_the_run_leaves_one_factor(tmp_path, switch, factor):
    (tmp_path / "plan.json").write_text(json.dumps(OLD | {"switch": switch}))
    assert Plan.load(tmp_path / "plan.json").layers == {"down.1.0": planned(factor, 4096, (64, 128))}


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


@pytest.mark.parametrize("old", ['"tokens": 4096', '"psnr": 45', '"seed": 0'])
def test_a_hostile_number_is_refused_in_a_sentence(tmp_path, old):
    plan_of({"up.1.0": planned(2, 4096, (8,))}, evidence={"psnr": 45}).save(tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    assert old in text
    (tmp_path / "plan.json").write_text(text.replace(old, f"{old.split(':')[0]}: -{HUGE}"))
    with pytest.raises(ValueError, match=r"plan\.json is not a plan: "):
        Plan.load(tmp_path / "plan.json")


def test_a_name_is_never_printed_as_it_is():
    with pytest.raises(ValueError, match=r"layers='\\x1b\[31mup\.1\.0' cannot be used"):
        plan_of({"\x1b[31mup.1.0": planned(2, 4096, (8,))})


def test_a_plan_cannot_be_changed():
    plan = plan_of({"up.1.0": planned(2, 4096, (8,))}, evidence={"psnr": 45})
    mappings: list[Any] = [plan.layers, plan.conditions, plan.evidence]
    for frozen in mappings:
        with pytest.raises(TypeError, match="cannot be changed"):
            frozen["up.1.0"] = None
    assert copy.deepcopy(plan) == pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize("huge", [10**400, 10**5000, -(10**400)], ids=["large", "larger", "negative"])
def test_numbers_that_are_too_large_are_refused(huge):
    for make in (lambda: Downsample(huge), lambda: Downsample(2, stop=huge), lambda: Merge(huge)):
        with pytest.raises((TypeError, ValueError), match="cannot be used"):
            make()


ANYWHERE = [(saved, place) for saved in (OLD, SAVED) for place in places(saved)]


@given(where=st.sampled_from(ANYWHERE), new=ANYTHING)
def test_a_file_with_anything_in_it_is_a_plan_or_is_refused(file, where, new):
    saved, place = where
    file.write_text(json.dumps(replaced(saved, place, new)))
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
        ({"layers": {"up.1.0": planned(0.5, 64, ())}}, "factor=0.5 cannot be used"),
        ({"layers": {"up.1.0": planned(two, 64, ())}}, "factor='2' cannot be used"),
        ({"layers": {"up.1.0": planned(2, 0, ())}}, "tokens of up.1.0=0 cannot be used"),
        ({"layers": {"up.1.0": planned(2, 64, (8, 0))}}, "width of up.1.0=(8, 0) cannot be used. Allowed: whole"),
        ({"layers": {"up.1.0": PlannedLayer((Piece(0.5, 2),), 64, ())}}, "pieces of up.1.0="),
        ({"layers": {"up.1.0": planned(2, 64, (), later=1, switch=1.5)}}, "pieces of up.1.0="),
        ({"evidence": [45.2]}, "evidence=[45.2] cannot be used. Allowed: what was measured, by name"),
        ({"evidence": {"psnr": "good"}}, "evidence psnr='good' cannot be used. Allowed: a number"),
        ({"conditions": {"size": 256}}, "size=256 cannot be used. Allowed: width and height in pixels"),
        ({"start": 1.5}, "start=1.5 cannot be used"),
        ({"stop": 1.5}, "stop=1.5 cannot be used"),
    ],
    ids=str,
)
def test_bad_fields_are_refused(given: dict[str, Any], said: str):
    fields = {"layers": LAYERS, **given}
    own = {name: fields.pop(name) for name in ("conditions", "evidence") if name in fields}
    with pytest.raises((ValueError, TypeError)) as error:
        Plan((DownsampleLayers(**fields),), **own)
    assert said in str(error.value)


@pytest.mark.parametrize("levers", [(), None, (2,), (Downsample(2), Merge(0.5))], ids=str)
def test_a_plan_has_levers_and_one_of_each_kind(levers):
    with pytest.raises((ValueError, TypeError), match=r"^levers?=.* cannot be used"):
        Plan(levers)
