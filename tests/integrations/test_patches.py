"""Patches for hosts that call them: which layer, which grid, which step, and when to keep out."""

import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from zoo import ldm_unet

from todome import Downsample, Merge, Plan
from todome.hosts.comfy import AttentionPatch, grid_of
from todome.levers.lever import Lever
from todome.levers.plan import LeverOrPlan
from todome.steps.sigmas import SigmaClock, place_in

DOWNSAMPLE = Downsample(2)
SCHEDULE = torch.tensor([14.6, 6.0, 2.0, 0.5, 0.0])
hundredths = st.lists(
    st.integers(1, 9999), min_size=1, max_size=30, unique_by=lambda level: round(50 * math.log(level))
)
schedules = hundredths.map(lambda levels: [*(level / 100 for level in sorted(levels, reverse=True)), 0.0])


@pytest.fixture(scope="module")
def unet() -> nn.Module:
    return ldm_unet()


def patch_on(unet: nn.Module, given: LeverOrPlan = DOWNSAMPLE) -> Any:
    return AttentionPatch(given, unet, tell=print)


def options(sigma: float = 6.0, **changes: Any) -> dict[str, Any]:
    """What a host tells its patches in one call of a layer of level 1."""
    told = {"block": ("input", 1), "block_index": 0, "original_shape": [2, 4, 9, 11], "sigmas": torch.tensor([sigma])}
    return {**told, "sample_sigmas": SCHEDULE, **changes}


def before(patch: Any, *tensors: Tensor, **changes: Any) -> tuple[Tensor, ...]:
    q, k, v = tensors * 3 if len(tensors) == 1 else tensors
    return patch.before(q, k, v, options(**changes))


def tokens(batch: int = 2, count: int = 99) -> Tensor:
    return torch.arange(batch * count).view(batch, count, 1).expand(-1, -1, 8).float()


@given(schedules, st.data())
def test_a_noise_level_of_the_schedule_and_those_up_to_the_next_are_of_its_step(schedule, data):
    step = data.draw(st.integers(0, len(schedule) - 2))
    assert place_in(schedule, schedule[step]) == step
    assert place_in(schedule, schedule[step] * (1 + 1e-6)) == step
    between = (schedule[step] + schedule[step + 1]) / 2
    assert place_in(schedule, between) == step


@given(schedules, st.floats(0, 200))
def test_every_noise_level_has_a_step(schedule, sigma):
    assert 0 <= place_in(schedule, sigma) <= len(schedule) - 2


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 4))
def test_grids_are_halved_as_unets_halve_them_unless_the_host_tells_them(height, width, scale):
    expected = height, width
    for _ in range(scale):
        expected = math.ceil(expected[0] / 2), math.ceil(expected[1] / 2)
    assert grid_of({"original_shape": [2, 4, height, width]}, scale) == expected
    assert grid_of({"original_shape": [2, 4, 64, 64], "activations_shape": [2, 320, 33, 37]}, 0) == (33, 37)


def test_both_halves_and_the_keys_and_values_of_others_are_selected_alike(unet):
    x = tokens()
    q, k, v = before(patch_on(unet), x, x + 1, x + 2)
    assert (q.shape, k.shape) == ((2, 99, 8), (2, 4 * 5, 8))
    assert torch.equal(k + 1, v)
    assert torch.equal(k[1] - 99, k[0])


LEFT_ALONE = {
    "text as keys": lambda x: (x, x[:, :77], x[:, :77]),
    "longer keys": lambda x: (x, torch.cat([x, x], 1), torch.cat([x, x], 1)),
    "tiles": lambda x: (x.reshape(22, 9, 8),),
    "frames": lambda x: (x.mT.reshape(16, 99, 1),),
}


@pytest.mark.parametrize("regroup", LEFT_ALONE.values(), ids=LEFT_ALONE)
@pytest.mark.parametrize("lever", [Downsample(2), Merge(0.5)], ids=["downsample", "merge"])
def test_what_others_made_of_the_tokens_is_left_alone(unet, lever, regroup):
    patch = patch_on(unet, lever)
    given = regroup(tokens())
    left = before(patch, *given)
    assert all(a is b for a, b in zip(left, given * 3, strict=False))
    assert patch.after(given[0], options()) is given[0]


UNKNOWN = [{"block": None}, {"block": ("input", 0)}, {"block_index": 7}, {"block": ("last", 0)}]


@pytest.mark.parametrize("changes", UNKNOWN, ids=str)
def test_layers_it_does_not_know_are_left_alone(unet, changes):
    x = tokens()
    assert before(patch_on(unet), x, **changes)[1] is x


def test_the_noise_is_read_once_in_a_call_of_the_model(unet, monkeypatch):
    reads = []
    monkeypatch.setattr(Tensor, "__float__", lambda self: reads.append(self) or self.item())
    patch = patch_on(unet)
    shape = [2, 4, 9, 11]
    for _ in range(3):
        before(patch, tokens(), original_shape=shape)
    assert len(reads) == 1
    before(patch, tokens(), original_shape=[*shape])
    assert len(reads) == 2


def follow(clock: SigmaClock, sigma: float) -> None:
    """A call of a host that does not tell its schedule."""
    clock.follow({"original_shape": [1, 4, 8, 8], "sigmas": torch.tensor([sigma])})


def test_without_a_schedule_a_rise_is_a_run_and_a_fall_a_step(unet):
    clock, seen = patch_on(unet).clock, []
    for sigma in (14.6, 14.6, 6.0, 6.0000001, 2.0, 14.6, 6.0):
        follow(clock, sigma)
        seen.append((clock.run, clock.step))
    assert seen == [(1, 0), (1, 0), (1, 1), (1, 1), (1, 2), (2, 0), (2, 1)]


def test_without_schedule_and_window_of_noise_a_window_is_refused(unet):
    text = "(start, stop)=(0.0, 0.5) cannot be used. Allowed: (0.0, 1.0) in a host that does not tell its schedule."
    with pytest.raises(RuntimeError, match=f"^{re.escape(text)}"):
        follow(patch_on(unet, Downsample(2, stop=0.5)).clock, 14.6)


@pytest.mark.parametrize("merge", [Merge(cross_attention=True), Merge(feed_forward=True)], ids=repr)
def test_parts_out_of_reach_are_refused(unet, merge):
    given = (True, merge.cross_attention, merge.feed_forward)
    text = f"(attention, cross_attention, feed_forward)={given} cannot be used. Allowed: (True, False, False)"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}"):
        patch_on(unet, merge)


class Rarer(Lever):
    """Another kind of lever, which hooks could have and patches cannot."""

    family = "calls"


@pytest.mark.parametrize("given", [Rarer(), Plan((Downsample(2), Rarer()))], ids=["alone", "in a plan"])
def test_levers_for_something_else_than_tokens_are_refused(unet, given):
    with pytest.raises(TypeError, match=r"^lever=.*Rarer.* cannot be used. Allowed: todome.Downsample"):
        patch_on(unet, given)
