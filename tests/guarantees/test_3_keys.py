"""Guarantee 3: attention sees what print(patch) says it sees, and the right rows are kept in the right places."""

import functools
import re
from typing import Any

import pytest
import torch
from promises import among, over_blocks, over_zoo
from torch import Tensor
from zoo import Host, host_named, image_keys, is_image_attention, recorded, token_counts

import todome
from todome import Downsample, Merge

SETTINGS = [
    (lambda n: Downsample(factor=(2,) * n), lambda h, w: (h // 2) * (w // 2)),
    (lambda n: Downsample(factor=(1.5,) * n), lambda h, w: four_of_nine(h, w)),
    (lambda n: Downsample(factor=(1.5,) * n, phase="fixed"), lambda h, w: int(h / 1.5) * int(w / 1.5)),
    (lambda n: Merge(ratio=(0.5,) * n), lambda h, w: h * w - int(h * w * 0.5)),
    # as far as whole cells go
    (lambda n: Merge(ratio=(0.75,) * n), lambda h, w: max(h * w - int(h * w * 0.75), (h // 2) * (w // 2))),
]


def four_of_nine(height: int, width: int) -> int:
    """Cells of 3 x 3 keep 2 x 2 at a time; a grid too small for them has cells of 2 x 2 that keep one."""
    side, kept = (3, 2) if min(height, width) >= 3 else (2, 1)
    return height // side * kept * (width // side * kept)


@functools.cache
def dense_counts(host: Host, pattern: str = r"\.to_k$") -> dict[str, int]:
    """What a model without a patch sees; no host sees another number the next time."""
    return token_counts(host, host.build(), pattern)


def dense_keys(host: Host) -> dict[str, int]:
    return {name: keys for name, keys in dense_counts(host).items() if is_image_attention(name)}


@over_zoo
def test_attention_sees_what_the_patch_says(host: Host):
    """Attention to the image sees what is said, and temporal, text and gated attention all that they ever saw."""
    target, dense, image = host.build(), dense_counts(host), dense_keys(host)
    for reduction, left in SETTINGS:
        patch = todome.apply(target, reduction(host.levels))
        seen = token_counts(host, target)
        said = {grid: count for level in patch.levels for grid, count in level.grids.items()}
        assert said == {grid: left(*grid) for grid in host.grids}
        for number, ((h, w), level) in enumerate(zip(host.grids, patch.levels, strict=True), start=1):
            names = [name for name, keys in image.items() if keys == h * w + host.extra]
            assert (level.level, level.layers) == (number, len(names))
            assert {seen[name] for name in names} == {left(h, w) + host.extra}
            assert f"{h}x{w} = {h * w} -> {left(h, w)}" in str(patch)
        assert all(seen[name] == keys for name, keys in dense.items() if name not in image)


@over_zoo
def test_a_number_is_for_level_1_alone(host: Host):
    target, dense = host.build(), dense_keys(host)
    for reduction in (Downsample(factor=2), Merge(ratio=0.5)):
        patch = todome.apply(target, reduction)
        seen = image_keys(host, target)
        finest = max(dense.values())
        assert all((seen[name] < keys) == (keys == finest) for name, keys in dense.items())
        assert [level.setting is None for level in patch.levels] == [False] + [True] * (host.levels - 1)


@pytest.mark.parametrize(
    ("host", "others"),
    [("animatediff", "motion_modules"), ("svd", "temporal_"), ("unet3d", "temp_attentions"), ("gligen", "fuser")],
)
def test_the_zoo_has_attention_that_must_be_left_alone(host: str, others: str):
    names = dense_counts(host_named(host))
    assert any(others in name and not is_image_attention(name) for name in names)


@over_zoo
def test_merge_reaches_cross_attention_and_feed_forward_when_asked(host: Host):
    target, parts = host.build(), r"attn[12]\.to_q$|ff\.(net\.)?0$"
    dense = dense_counts(host, parts)
    todome.apply(target, Merge(attention=False, cross_attention=True, feed_forward=True))
    seen = token_counts(host, target, parts)
    reached = {name for name, count in seen.items() if count < dense[name]}
    h, w = host.grids[0]
    assert {dense[name] - seen[name] for name in reached} == {int(h * w * 0.5)}
    parts_of_level_1 = {name for name, count in dense.items() if count - h * w in (0, host.extra)}
    assert reached == {name for name in parts_of_level_1 if not re.search(r"attn1|fuser", name)}


def rows_in(kept: Tensor, whole: Tensor) -> list[int]:
    """Which rows of the whole these are, in their order."""
    return (kept[:, None] == whole[None]).all(-1).float().argmax(1).tolist()


def first_keys(host: Host, target: Any) -> Tensor:
    """The input of the first self-attention's `to_k`: what is before it is no attention, so it is dense's own."""
    with recorded(target, r"attn1\.to_k$") as seen:
        host.run(target)
    keys = next(calls[0] for name, calls in seen.items() if is_image_attention(name.removesuffix(".to_k")))
    return keys[0, host.extra :]  # (keys, channels)


@over_zoo
def test_fixed_keeps_the_corner_of_every_cell(host: Host):
    target = host.build()
    whole = first_keys(host, target)
    height, width = host.grids[0]
    todome.apply(target, Downsample(factor=2, phase="fixed"))
    kept = rows_in(first_keys(host, target), whole)
    top, left = ([int(i * n / (n // 2)) for i in range(n // 2)] for n in (height, width))
    assert kept == [r * width + c for r in top for c in left]


@over_blocks
def test_dither_keeps_every_key_of_its_cell_in_turn(host: Host):
    """Cells are 2x2, and larger at places where a side is odd: those need more turns."""
    target = host.build()
    whole = first_keys(host, target)
    height, width = host.grids[0]
    turns = (2 + height % 2) * (2 + width % 2)
    patch = todome.apply(target, Downsample(factor=2))
    met: list[list[int]] = []
    for step in range(turns):
        patch.at(step, turns)
        met.append(rows_in(first_keys(host, target), whole))
    rows = [row for kept in met for row in kept]
    assert set(rows) == set(range(height * width))
    if turns == 4:
        assert len(rows) == height * width
    for cell in zip(*met, strict=True):
        places = {divmod(row, width) for row in cell}
        assert all(max(axis) - min(axis) <= 2 for axis in zip(*places, strict=True))


def moved_keys(before: Tensor, after: Tensor) -> list[int]:
    return (before != after).any(-1).nonzero().flatten().tolist()


@among("sd1", "ldm1")
def test_one_token_moves_exactly_its_key(host: Host):
    """The layout probe: nudge one place of the picture, where it is still (batch, channels, height, width).

    Before the projection to tokens: a normalisation lies in front of it in UNets, which would spread the nudge.
    """
    target = host.build()
    todome.apply(target, Downsample(factor=2, phase="fixed"))
    before = first_keys(host, target)
    inlet = next(module for name, module in target.named_modules() if name.endswith("proj_in"))
    for row, column, moved in [(0, 0, [0]), (4, 6, [2 * 9 + 3]), (14, 16, [7 * 9 + 8]), (4, 7, [])]:
        nudge = torch.zeros(16, 18)
        nudge[row, column] = 1
        hook = inlet.register_forward_pre_hook(lambda _, args, nudge=nudge: args[0] + nudge)
        assert moved_keys(before, first_keys(host, target)) == moved
        hook.remove()
