"""Guarantee 2: remove leaves no trace."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from promises import among, hook_tables, over_blocks, over_zoo, snapshot
from zoo import Host, is_image_attention, model_of, picture, reduced_everywhere

import todome
from todome import Downsample, Merge


@over_zoo
def test_remove_restores_output_and_attributes(host: Host):
    target = host.build()
    dense, before = host.run(target), snapshot(target)
    for kind in (Downsample, Merge):
        patch = todome.apply(target, reduced_everywhere(kind, host))
        assert snapshot(target) != before
        host.run(target)
        patch.remove()
        assert snapshot(target) == before, kind
        assert torch.equal(host.run(target), dense), kind


@over_blocks
def test_remove_restores_after_several_applies(host: Host):
    target = host.build()
    dense, before = host.run(target), snapshot(target)
    for kind in (Downsample, Merge, Merge, Downsample):
        todome.apply(target, reduced_everywhere(kind, host))
        host.run(target)
    todome.remove(target)
    assert snapshot(target) == before
    assert torch.equal(host.run(target), dense)


def take_off_by_patch(target: Any, patches: list[todome.Patch]) -> None:
    patches[-1].remove()


def take_off_by_target(target: Any, patches: list[todome.Patch]) -> None:
    todome.remove(target)


def take_off_like_tomesd(target: Any, patches: list[todome.Patch]) -> None:
    todome.remove_patch(target)


def take_off_in_every_way(target: Any, patches: list[todome.Patch]) -> None:
    for patch in patches:
        patch.remove()
    todome.remove(target)
    todome.remove_patch(target)


WAYS = [take_off_by_patch, take_off_by_target, take_off_like_tomesd, take_off_in_every_way]


@pytest.mark.parametrize("take_off", WAYS)
@among("sd1", "ldm1-wrapped")
def test_any_order_of_applies_comes_off_in_any_way(host: Host, take_off: Callable[..., None]):
    target = host.build()
    before = snapshot(target)
    reductions = [
        Downsample(factor=2),
        Merge(cross_attention=True, feed_forward=True),
        Downsample(factor=1.5, stop=0.5),
    ]
    for order in itertools.permutations(reductions):
        patches = [todome.apply(target, reduction) for reduction in order]
        take_off(target, patches)
        assert snapshot(target) == before


class PowerCut(Exception):
    pass


def fail(*_: Any) -> None:
    raise PowerCut


@over_blocks
def test_an_exception_inside_with_takes_the_patch_off(host: Host):
    """In the middle of a call, when a block has begun and not ended."""
    target = host.build()
    dense, before = host.run(target), snapshot(target)
    last = [module for name, module in model_of(target).named_modules() if is_image_attention(name)][-1]
    for kind in (Downsample, Merge):
        failing = last.register_forward_pre_hook(fail)
        with pytest.raises(PowerCut), todome.apply(target, reduced_everywhere(kind, host)):
            host.run(target)
        failing.remove()
        assert snapshot(target) == before, kind
        assert torch.equal(host.run(target), dense), kind


@over_zoo
def test_removing_nothing_is_fine(host: Host):
    target = host.build()
    before = snapshot(target)
    todome.remove(target)
    patch = todome.apply(target, Downsample(factor=2))
    patch.remove()
    patch.remove()
    todome.remove_patch(target)
    assert snapshot(target) == before


@over_zoo
def test_a_replaced_patch_cannot_remove_the_newer_one(host: Host):
    target = host.build()
    old = todome.apply(target, Merge())
    new = todome.apply(target, Downsample(factor=2))
    patched = snapshot(target)
    old.remove()
    assert snapshot(target) == patched
    new.remove()
    assert not any(hooks for _, hooks in hook_tables(target))


def test_remove_restores_the_scheduler_of_a_pipeline(pipe: Any):
    dense, before = picture(pipe), dict(vars(pipe.scheduler))
    with todome.apply(pipe, Downsample(factor=2)):
        assert vars(pipe.scheduler) != before
        assert not torch.equal(picture(pipe), dense)
    assert vars(pipe.scheduler).keys() == before.keys()
    assert torch.equal(picture(pipe), dense)
