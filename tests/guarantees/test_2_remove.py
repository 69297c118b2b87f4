"""Guarantee 2: remove leaves no trace."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from promises import among, hook_tables, over_blocks, over_zoo, snapshot
from zoo import Host, is_image_attention, model_of, reduced_everywhere

import todome
from todome import Downsample, Merge


@over_zoo
def test_remove_restores_output_and_attributes(host: Host):
    target = host.build()
    dense, before = host.run(target), snapshot(target)
    todome.remove(target)  # where nothing is
    for kinds in ([Downsample], [Merge], [Downsample, Merge, Merge, Downsample]):
        for kind in kinds:
            todome.apply(target, reduced_everywhere(kind, host))
            host.run(target)
        assert snapshot(target) != before
        for _ in range(2):
            todome.remove(target)
            assert snapshot(target) == before, kinds
        assert torch.equal(host.run(target), dense), kinds


WAYS: dict[str, Callable[..., Any]] = {
    "patch.remove": lambda target, patches: patches[-1].remove(),
    "every patch": lambda target, patches: [patch.remove() for patch in patches],
    "todome.remove": lambda target, patches: todome.remove(target),
    "as tomesd": lambda target, patches: todome.remove_patch(target),
}


@pytest.mark.parametrize("take_off", WAYS.values(), ids=WAYS)
@among("sd1", "ldm1-wrapped")
def test_any_order_of_applies_comes_off_in_any_way(host: Host, take_off: Callable[..., Any]):
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


@over_blocks
def test_an_exception_inside_with_takes_the_patch_off(host: Host):
    """In the middle of a call, when a block has begun and not ended."""
    target = host.build()
    dense, before = host.run(target), snapshot(target)
    last = [module for name, module in model_of(target).named_modules() if is_image_attention(name)][-1]
    for kind in (Downsample, Merge):
        failing = last.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError), todome.apply(target, reduced_everywhere(kind, host)):
            host.run(target)
        failing.remove()
        assert snapshot(target) == before, kind
        assert torch.equal(host.run(target), dense), kind


@among("sd1")
def test_a_replaced_patch_cannot_remove_the_newer_one(host: Host):
    target = host.build()
    old = todome.apply(target, Merge())
    new = todome.apply(target, Downsample(factor=2))
    patched = snapshot(target)
    old.remove()
    assert snapshot(target) == patched
    new.remove()
    assert not any(hooks for _, hooks in hook_tables(target))
