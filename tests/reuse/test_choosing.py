"""Schedules: the law is the error of an interpolation, the cheapest word is found, by hand it is as it was asked."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st

from todome import Reuse
from todome.steps import costs
from todome.steps.choosing import FEWEST, LONGEST, Schedule, Weights, by_hand, choose, kind_by_hand
from todome.steps.law import HIGHEST_SIGMA, TRANSFORMER, UNET, Law, decibels
from todome.steps.lines import Line

CURVES = {"s": (-8.5, 2.45, 0.31), "d": (-9.65, 2.8, 0.39), "D": (-11.5, 2.6, 0.68), "o": (-7.3, 1.2, 0.4)}
LAW = Law(tuple(CURVES.items()))
KINDS = tuple("fDdSso")


class Task(NamedTuple):
    """What a schedule is found for."""

    sigmas: tuple[float, ...]
    shares: tuple[tuple[str, float], ...]
    weights: Weights
    keep: float

    def solved(self) -> Schedule:
        return choose(*self)


def spaced(steps: int, highest: float, lowest: float, power: float) -> tuple[float, ...]:
    """Noise levels as Karras spaces them; with power 1 evenly."""
    begin, end = highest ** (1 / power), lowest ** (1 / power)
    return tuple((begin + (end - begin) * step / (steps - 1)) ** power for step in range(steps))


def shares_of(finest: str, side: int, letters: Sequence[str] = KINDS) -> tuple[tuple[str, float], ...]:
    found = costs.unet_shares(finest, (side, side), 1)
    return tuple((letter, found[letter]) for letter in letters)


@st.composite
def tasks(draw: Any, least: int = FEWEST, most: int = 11) -> Task:
    steps = draw(st.integers(least, most))
    sigmas = spaced(steps, draw(st.floats(1, 20)), draw(st.floats(0.02, 0.3)), draw(st.sampled_from([1, 3, 7])))
    letters = draw(st.sampled_from([KINDS, ("o", "D", "S"), ("f", "o"), ("o",), ("s", "d")]))
    shares = shares_of(draw(st.sampled_from(["attention", "convolutions"])), draw(st.integers(48, 300)), letters)
    weights = Weights(UNET, draw(st.sampled_from([1.0, 3.0, 5.0, 7.5, 12.0])), draw(st.sampled_from([1, 2])))
    return Task(sigmas, shares, weights, draw(st.floats(22, 60)))


def cheapest_of_all(task: Task) -> float:
    """The cost of the best word, in calls: every choice of partial steps, and of their kinds every one of use."""
    sigmas, x = task.sigmas, [math.log(sigma) for sigma in task.sigmas]
    free = [place for place in range(2, len(x) - 1) if sigmas[place] <= HIGHEST_SIGMA]
    most, best = 10 ** (-task.keep / 10), float(len(x))
    for count in range(1, len(free) + 1):
        for partial in combinations(free, count):
            if any(set(range(place, place + LONGEST + 1)) <= set(partial) for place in partial):
                continue
            front = [(len(x) - count, 0.0)]  # costs and errors, of which none is better in both
            for place in partial:
                before, last = [x[full] for full in range(place) if full not in partial][-2:]
                wrong = ((x[place] - before) * (x[place] - last) / 2) ** 2
                more = [(share, wrong * task.weights.weight(letter, sigmas[place])) for letter, share in task.shares]
                front = best_of([(cost + c, error + e) for cost, error in front for c, e in more], most)
            best = min([best, *(cost for cost, _ in front)])
    return best


def best_of(found: Sequence[tuple[float, float]], most: float) -> list[tuple[float, float]]:
    front: list[tuple[float, float]] = []
    for cost, error in sorted(found):
        if error <= min([most, *(known for _, known in front[-1:])]):
            front.append((cost, error))
    return front


def check(word: str, sigmas: Sequence[float]) -> None:
    """What every schedule is bound to."""
    assert len(word) == len(sigmas)
    assert word[:2] == "FF"
    assert word[-1] == "F"
    assert all(letter == "F" for letter, sigma in zip(word, sigmas, strict=True) if sigma > HIGHEST_SIGMA)
    assert max(map(len, "".join("F" if letter == "F" else "p" for letter in word).split("F"))) <= LONGEST


@how(max_examples=60)
@given(task=tasks())
def test_the_schedule_is_the_cheapest_that_keeps_what_is_asked(task):
    found = task.solved()
    check(found.word, task.sigmas)
    assert found.keeps >= task.keep - 1e-9
    assert found.cost * len(task.sigmas) <= cheapest_of_all(task) * 1.02
    assert set(found.word) <= {"F", *dict(task.shares)}


@given(task=tasks(most=60))
def test_what_a_schedule_says_of_itself_is_so(task):
    found = task.solved()
    check(found.word, task.sigmas)
    error = by_the_formula(found.word, task)
    assert found.keeps == pytest.approx(-10 * math.log10(error) if error else math.inf)
    assert found.keeps >= task.keep - 1e-9
    shares = dict(task.shares) | {"F": 1.0}
    assert found.cost == pytest.approx(sum(map(shares.__getitem__, found.word)) / len(found.word))


def by_the_formula(word: str, task: Task) -> float:
    """The law as the pages write it."""
    total, full = 0.0, []
    for place, letter in enumerate(word):
        x = math.log(task.sigmas[place])
        if letter == "F":
            full.append(x)
        else:
            error = (x - full[-1]) * (x - full[-2]) / 2
            total += error**2 * task.weights.weight(letter, task.sigmas[place])
    return total


@given(task=tasks(most=40), more=st.floats(0, 10))
def test_who_asks_for_more_gets_no_less(task, more):
    found, closer = task.solved(), task._replace(keep=task.keep + more).solved()
    assert closer.keeps >= found.keeps - 1e-9
    assert closer.cost >= found.cost * 0.99


@given(task=tasks(most=40), twice=st.booleans())
def test_both_calls_at_a_noise_level_are_of_one_kind(task, twice):
    sigmas = (task.sigmas[0], *(sigma for sigma in task.sigmas[1:] for _ in range(1 + twice)))
    found = task._replace(sigmas=sigmas).solved()
    kinds = {
        sigma: {letter for letter, own in zip(found.word, sigmas, strict=True) if own == sigma} for sigma in sigmas
    }
    assert all(len(letters) == 1 for letters in kinds.values())
    check("".join(letters.pop() for letters in kinds.values()), task.sigmas)
    assert found.keeps >= task.keep - 1e-9


@pytest.mark.parametrize("steps", range(FEWEST))
def test_few_steps_are_computed(steps):
    sigmas = tuple(3.0 / (1 + step) for step in range(steps))
    weights = Weights(UNET, 5.0, 1)
    assert choose(sigmas, shares_of("convolutions", 128), weights, 20.0) == Schedule("F" * steps, math.inf, 1.0)
    twice = tuple(sigma for sigma in sigmas for _ in range(2))
    assert set(choose(twice, shares_of("convolutions", 128), weights, 20.0).word) <= {"F"}
    assert by_hand(Reuse(every=2), sigmas, 0, dict(shares_of("attention", 64)), True).word == "F" * steps
    assert by_hand(Reuse(every=2), twice, 0, dict(shares_of("attention", 64)), True).word == "F" * 2 * steps


def test_where_nothing_can_be_gained_everything_is_computed():
    sigmas = spaced(20, 4.0, 0.1, 3)
    whole = Schedule("F" * 20, math.inf, 1.0)
    assert choose(sigmas, shares_of("attention", 64), Weights(UNET, 5.0, 2), 500.0) == whole
    assert choose(sigmas, (), Weights(UNET, 5.0, 2), 30.0) == whole
    assert choose(sigmas, (("T", 0.5), ("t", 0.3)), Weights(UNET, 5.0, 2), 30.0) == whole  # there is no curve of them
    assert choose(sigmas, (("o", 1.0), ("s", 1.2)), Weights(UNET, 5.0, 2), 30.0) == whole  # they cost what all costs
    assert choose((20.0,) * 4 + (10.0,) * 16, shares_of("attention", 64), Weights(UNET, 5.0, 2), 30.0) == whole


def test_transformers_have_their_output_and_guidance():
    shares = (("o", costs.NOTHING), *costs.TRANSFORMER.items())
    found = choose(spaced(30, 100.0, 0.05, 3), shares, Weights(TRANSFORMER, 4.0, 1), 40.0)
    assert {"o"} < set(found.word) <= set("Fof")
    assert found.cost < 0.9


def test_a_run_of_all_steps_of_the_training_is_short_work():
    found = choose(spaced(1000, 14.6, 0.03, 7), shares_of("attention", 64), Weights(UNET, 7.5, 1), 45.0)
    check(found.word, spaced(1000, 14.6, 0.03, 7))
    assert found.keeps >= 45
    assert found.cost < 0.6


def test_defaults_of_torch_do_not_matter():
    task = Task(spaced(12, 14.0, 0.05, 3), shares_of("convolutions", 128), Weights(UNET, 4.9, 2), 39.9)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        with torch.device("meta"), torch.inference_mode():
            found = task.solved()
    finally:
        torch.set_default_dtype(before)
    choose.cache_clear()
    assert found == task.solved()


# The law


@given(x=st.floats(-3, 2), a=st.floats(-3, 2), b=st.floats(-3, 2))
def test_the_error_term_is_what_a_line_misses_of_a_curve(x, a, b):
    """Of x squared half, whose second derivative is 1."""
    if abs(a - b) > 0.1:
        values = [torch.tensor([at * at / 2], dtype=torch.double) for at in (a, b)]
        line = Line(a, values[0]).moved(b, values[1])
        assert Law.wrong_by(x, a, b) == pytest.approx(x * x / 2 - float(line.at(x)), abs=1e-4)


def test_the_law_is_its_formula():
    sigmas = (8.0, 4.0, 2.0, 1.0, 0.5)
    weights = Weights(LAW, 5.0, 2)
    wrong = math.log(2) * math.log(4) / 2
    k0, k1, k2 = CURVES["s"]
    expected = wrong**2 * math.exp(k0 + k1 * math.log(2) + k2 * math.log(2) ** 2)
    assert LAW.error("FFsFF", sigmas, 5.0, 2) == pytest.approx(expected)
    assert weights.weight("s", 1.0) == pytest.approx(math.exp(k0))
    farther = math.log(4) * math.log(8) / 2
    assert LAW.error("FFssF", sigmas, 5.0, 2) == pytest.approx(expected + farther**2 * weights.weight("s", 1.0))


def test_the_second_value_at_a_noise_level_is_no_new_one():
    assert LAW.error("FFFFsF", (8.0, 4.0, 4.0, 4.0, 2.0, 1.0), 5.0, 2) == LAW.error(
        "FFsF", (8.0, 4.0, 2.0, 1.0), 5.0, 2
    )


@given(sigma=st.floats(0.03, 4.5), letter=st.sampled_from("sdDo"))
def test_more_guidance_and_a_higher_order_are_no_closer(sigma, letter):
    def at(guidance: float, order: int) -> float:
        return LAW.weight(letter, sigma, guidance, order)

    assert at(3.0, 2) <= at(5.0, 2) <= at(7.5, 2) <= at(12.0, 2)
    assert at(5.0, 1) <= at(5.0, 2) == at(5.0, 3)


def test_no_error_is_infinitely_close():
    assert decibels(0.0) == math.inf
    assert decibels(1e-4) == pytest.approx(40)


# By hand

SIGMAS = spaced(12, 14.0, 0.05, 3)
ALL = dict(shares_of("attention", 64, (*KINDS, "T", "t")))
HALVES_LACKING: Mapping[str, float] = {letter: share for letter, share in ALL.items() if letter in "DSoT"}


def hand(
    sigmas: Sequence[float] = SIGMAS, skipped: int = 0, guided: bool = True, shares: Any = ALL, **asked: Any
) -> str:
    return by_hand(Reuse(**asked), sigmas, skipped, shares, guided).word


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"every": 1}, "FFFFFFFFFFFF"),
        ({"every": 2}, "FFFFsFsFsFsF"),
        ({"every": 3}, "FFFFssFssFsF"),
        ({"every": 50}, "FFFFsssssssF"),
        ({"every": 2, "warmup": 0}, "FFsFsFsFsFsF"),
        ({"every": 2, "warmup": 0.5}, "FFFFFFsFsFsF"),
        ({"every": 2, "warmup": 1}, "FFFFFFFFFFFF"),
        ({"every": 2, "stages": 0}, "FFFFoFoFoFoF"),
        ({"every": 2, "stages": 2}, "FFFFdFdFdFdF"),
        ({"every": 2, "stages": 3}, "FFFFtFtFtFtF"),
        ({"every": 2, "stages": 4}, "FFFFfFfFfFfF"),
        ({"every": 2, "guidance": False}, "FFFFSFSFSFSF"),
        ({"every": 2, "stages": 4, "guidance": False}, "FFFFFFFFFFFF"),
        ({"every": 2, "guided": False, "shares": HALVES_LACKING}, "FFFFSFSFSFSF"),
        ({"every": 2, "guided": False, "shares": HALVES_LACKING, "stages": 9}, "FFFFFFFFFFFF"),
        ({"every": 2, "shares": {"o": 0.005, "f": 0.55}}, "FFFFoFoFoFoF"),  # a transformer has no stages
        ({"every": 2, "shares": {"o": 0.005, "f": 0.55}, "guided": False}, "FFFFoFoFoFoF"),
    ],
    ids=str,
)
def test_a_schedule_by_hand_is_what_was_asked(asked, word):
    assert hand(**asked) == word


def test_a_schedule_by_hand_says_what_it_costs_and_not_how_close_it_is():
    found = by_hand(Reuse(every=2), SIGMAS, 0, ALL, True)
    assert found.cost == pytest.approx((8 + 4 * ALL["s"]) / 12)
    assert math.isnan(found.keeps)
    assert by_hand(Reuse(every=1), SIGMAS, 0, ALL, True).keeps == math.inf


@given(steps=st.integers(8, 60), skipped=st.integers(0, 60), warmup=st.floats(0, 1), every=st.integers(2, 9))
def test_the_warm_up_is_a_share_of_the_full_schedule(steps, skipped, warmup, every):
    """Img2img begins in the middle, where the composition is settled already."""
    sigmas = spaced(skipped + steps, 14.0, 0.05, 3)
    word = hand(sigmas[skipped:], skipped, every=every, warmup=warmup)
    settled = min(max(2, math.ceil(warmup * (skipped + steps) - 1e-6) - skipped), steps)
    assert word[:settled] == "F" * settled
    rest = word[settled:-1]
    assert all((letter == "F") == ((place + 1) % every == 0) for place, letter in enumerate(rest))
    assert word[-1] == "F"


def test_a_sampler_of_second_order_is_taken_step_by_step():
    """Its last call of a step is at the noise level of the first one of the next."""
    twice = (SIGMAS[0], *(sigma for sigma in SIGMAS[1:] for _ in range(2)))
    assert hand(twice, every=2) == "F" + "FF" * 3 + "ssFF" * 4
    many = spaced(20, 14.0, 0.05, 3)
    later = [sigma for sigma in many[8:] for _ in range(2)]  # of 39 calls, 15 were skipped
    assert hand(later, 15, every=2, warmup=0.5) == "FF" * 3 + "ssFF" * 4 + "FF"


@given(stages=st.integers(0, 9), halves=st.booleans(), letters=st.sets(st.sampled_from("fDdSsTt")))
def test_the_kind_of_partial_steps_is_one_that_the_model_has(stages, halves, letters):
    have = {"o": 0.1, "f": 0.5} | {letter: 0.3 for letter in letters if halves or letter in "DST"}
    assert kind_by_hand(stages, halves, have) in {*have, "F"}


# Costs


@given(finest=st.sampled_from(["attention", "convolutions"]), side=st.floats(1, 2000))
def test_costs_between_two_sizes_are_between_theirs(finest, side):
    table = costs.SHARES[finest]
    found = costs.between(table, side)
    sides = sorted(table)
    low = max([one for one in sides if one <= side], default=sides[0])
    high = min([one for one in sides if one >= side], default=sides[-1])
    for share, *ends in zip(found, table[low], table[high], strict=True):
        assert min(ends) - 1e-12 <= share <= max(ends) + 1e-12


@pytest.mark.parametrize("finest", ["attention", "convolutions"])
def test_costs_are_those_of_the_table_at_its_sizes(finest):
    for side, row in costs.SHARES[finest].items():
        assert costs.between(costs.SHARES[finest], side) == pytest.approx(row)
        found = costs.unet_shares(finest, (side, side), 1)
        assert [found[letter] for letter in costs.KINDS] == pytest.approx(row)
    for column in range(len(costs.KINDS)):  # from size to size they go one way
        rows = [costs.between(costs.SHARES[finest], 64 * 1.01**step)[column] for step in range(140)]
        jumps = max(abs(after - before) for before, after in pairwise(rows))
        assert jumps < 0.01


@given(finest=st.sampled_from(["attention", "convolutions"]), side=st.integers(8, 512), batch=st.integers(1, 16))
def test_less_of_a_model_costs_less(finest, side, batch):
    found = costs.unet_shares(finest, (side, side), batch)
    assert 0 < found["o"] < found["s"] < found["d"] <= found["t"] <= found["f"] < 1
    assert found["s"] < found["S"] < found["D"] <= found["T"] < 1
    assert found == pytest.approx(costs.unet_shares(finest, (side * batch, side), 1))  # a batch is a larger picture
    assert found == pytest.approx(costs.unet_shares(finest, (side, side * batch), 1))
