"""The search of `todome.tune`: measurements in a file, choices within a budget, on models that are known."""

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from todome.levers.layers import PlannedLayer
from todome.levers.lever import setting_at
from todome.levers.plan import Plan
from todome.tools.tuning.choice import Option, cheapest
from todome.tools.tuning.goal import Goal
from todome.tools.tuning.layer_times import FACTORS, LayerTimes
from todome.tools.tuning.layers import SWITCH, Factors, TunedLayers
from todome.tools.tuning.records import FILE, Records
from todome.tools.tuning.search import Search, Trial
from todome.tools.tuning.sensitivity import Probe, Sensitivity


def never() -> float:
    raise AssertionError("it was measured before")


def test_what_was_measured_is_found_again_under_the_same_conditions(tmp_path: Path):
    first = Records({"size": [8, 8]}, tmp_path / "run")
    assert first.measure({"layer": "up.1.0"}, lambda: {"mse": 0.5}) == {"mse": 0.5}
    again = Records({"size": [8, 8]}, tmp_path / "run")
    assert {"layer": "up.1.0"} in again
    assert again.measure({"layer": "up.1.0"}, never) == {"mse": 0.5}
    other = Records({"size": [16, 8]}, tmp_path / "run")
    assert {"layer": "up.1.0"} not in other
    assert other.measure({"layer": "up.1.0"}, lambda: 2) == 2
    assert Records({"size": [8, 8]}, tmp_path / "run").measure({"layer": "up.1.0"}, never) == {"mse": 0.5}


def test_a_line_that_was_cut_off_costs_that_measurement_alone(tmp_path: Path):
    for i in range(3):
        Records({}, tmp_path).measure({"what": i}, lambda i=i: i)
    path = tmp_path / FILE
    path.write_text(path.read_text()[:-10])
    records = Records({}, tmp_path)
    assert [{"what": i} in records for i in range(3)] == [True, True, False]
    records.measure({"what": 3}, lambda: 3)
    assert Records({}, tmp_path).measure({"what": 3}, never) == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full disk")
def test_on_a_full_disk_nothing_is_taken_for_measured(tmp_path: Path):
    (tmp_path / FILE).symlink_to("/dev/full")
    records = Records({}, tmp_path)
    with pytest.raises(OSError, match="No space left"):
        records.measure({"what": 0}, lambda: 0)
    assert {"what": 0} not in records


def brute_force(groups: list[list[Option]], budget: float) -> float | None:
    sums = [(sum(o.cost for o in chosen), sum(o.weight for o in chosen)) for chosen in itertools.product(*groups)]
    return min((cost for cost, weight in sums if weight <= budget), default=None)


# Of very different sizes, and often the same ones.
sizes = st.builds(lambda digit, power: digit * 10.0**power, st.integers(0, 3), st.integers(-3, 0))
options = st.builds(Option, st.none(), sizes, sizes)
layers = st.lists(st.lists(options, min_size=1, max_size=4), min_size=1, max_size=5)


@given(layers, st.sampled_from([0, 0.01, 0.5, 3, 100]))
@settings(deadline=None)
def test_it_is_as_good_as_trying_everything(groups: list[list[Option]], budget: float):
    bins = 500
    found = cheapest(groups, budget, bins)
    best, sure = brute_force(groups, budget), brute_force(groups, budget * (1 - len(groups) / bins))
    if found is None:
        assert sure is None
        return
    assert best is not None
    assert all(option in group for option, group in zip(found, groups, strict=True))
    assert sum(option.weight for option in found) <= budget * (1 + 1e-9)
    cost = sum(option.cost for option in found)
    assert cost >= best - 1e-9
    assert sure is None or cost <= sure + 1e-9


NAMES = ["down.1.0", "down.1.1", "up.1.0", "up.1.1", "up.1.2"]
SAVED = {1.5: 0.05, 2: 0.08, 3: 0.1, 4: 0.11}  # of a step, by one layer


def chance(text: str) -> float:
    """A number from -1 to 1 that belongs to a text."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**31 - 1


def choices_of(plan: Plan) -> dict[str, Factors]:
    """The factor of each layer in each half of a run."""
    return {name: (setting_at(one.pieces, 0), setting_at(one.pieces, SWITCH)) for name, one in plan.layers.items()}


class Model:
    """Pictures have an error of scale * (error of the latents) ** power, and more or less by chance.

    What is said of the first trial, every layer at one factor, need not hold for choices: it differs by `apart` dB.
    """

    def __init__(self, power: float, scale: float, noise: float, apart: float = 0) -> None:
        self.power, self.scale, self.noise, self.apart = power, scale, noise, apart
        self.sensitivity = Sensitivity()
        for i, name in enumerate(NAMES):
            for half in (0, 1):
                for factor in FACTORS:
                    error = 1e-3 * 3 ** chance(f"{name} {half}") * factor**3 / 2**i
                    self.sensitivity.errors[Probe(name, half, factor)] = error

    def picture_errors(self, plan: Plan) -> list[float]:
        choices = choices_of(plan)
        more = self.noise * chance(str(choices)) + self.apart * ({*choices.values()} == {(2, 2)})
        return [self.scale * self.sensitivity.total(choices) ** self.power * 10 ** (more / 10)]

    def search(self, levels: Sequence[int] = (1, 1, 1, 1, 1)) -> Search:
        dense = {name: PlannedLayer.flat(1, 1024, (64, 64)) for name in NAMES}
        layers = TunedLayers(dense, dict(zip(NAMES, levels, strict=True)))
        times = LayerTimes(
            10.0, 0.0, {(level, factor): SAVED[factor] for level in sorted({*levels}) for factor in SAVED}
        )

        def time_plan(plan: Plan) -> dict[str, float]:
            return {"speedup": times.speedup(layers, choices_of(plan)), "noise": 0.0}

        drawings: Any = self
        return Search(layers, times, self.sensitivity, drawings, Records({}), time_plan)

    def fastest_within(self, error: float) -> float:
        """How fast a plan can be, if one knew the law."""
        search = self.search()
        return search.times.speedup(search.layers, search.fastest((error / self.scale) ** (1 / self.power)))


@given(st.floats(15, 60))
@settings(deadline=None)
def test_without_measured_layers_the_best_factor_of_each_level_is_found(keep: float):
    model, goal, levels = Model(1.0, 1.0, 0.0), Goal(keep), (1, 1, 2, 2, 2)
    known = [model.search(levels).draw(choices) for choices in model.search(levels).uniform_choices()]
    kept = [trial.choices for trial in known if trial.error <= goal.error]
    search = model.search(levels)
    search.sensitivity = Sensitivity()
    best = search.run(goal, lambda: True)
    assert (best and best.choices) == (kept[-1] if kept else None)
    assert search.trials[0].choices == dict.fromkeys(NAMES[2:], (2, 2))


def test_a_plan_that_another_budget_drew_counts_too():
    """It does not lead the search: the same call again draws the same plans."""
    model, goal = Model(1.0, 1.0, 0.0), Goal(40)
    search = model.search()
    own = search.run(goal, lambda: True)
    assert own is not None
    drawn = [trial.choices for trial in search.trials]
    lucky = dict.fromkeys(NAMES, (4, 4))
    search.records.measure({"picture errors": lucky}, lambda: [0.5 * goal.error])
    search.records.measure({"speed-up": lucky}, lambda: {"speedup": 2.2, "noise": 0.0})
    search.trials = []
    assert search.run(goal, lambda: True) == Trial(lucky, [0.5 * goal.error], 2.2, 0.0)
    assert [trial.choices for trial in search.trials] == drawn
    assert search.run(Goal(faster=2.2), lambda: False) == Trial(lucky, [0.5 * goal.error], 2.2, 0.0)


def test_where_nothing_changes_a_picture_the_fastest_is_taken():
    best = Model(1.0, 0.0, 0.0).search().run(Goal(45), lambda: True)
    assert best is not None
    assert best.choices == dict.fromkeys(NAMES, (4, 4))


@pytest.mark.thorough
@given(st.floats(0.7, 1.5), st.floats(-1, 1), st.floats(0, 0.5), st.floats(-4, 4), st.floats(20, 60))
@settings(deadline=None, max_examples=12)
def test_a_budget_is_kept_and_used(power: float, scale: float, noise: float, apart: float, keep: float):
    model, goal = Model(power, 10**scale, noise, apart), Goal(keep)
    best = model.search().run(goal, lambda: True)
    found = 1.0 if best is None else best.speedup
    assert best is None or best.error <= goal.error
    assert found >= 0.97 * model.fastest_within(goal.error / 10 ** (2 * noise / 10))
