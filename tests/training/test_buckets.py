"""Pictures of many shapes in batches of one shape: every one is seen, in an order that the seed and the number give."""

from collections import Counter

import pytest

from todome.tools.training.buckets import batch_at, bucket_sizes, epoch_batches, group_by_size, nearest_bucket

BUCKETS = ((0, 3, 5), (1,), (2, 4, 6, 7))


def test_sizes_of_a_small_model():
    wide = [(72, 56), (80, 48), (88, 40), (96, 40), (104, 32), (112, 32), (120, 32), (128, 32)]
    assert bucket_sizes(64, 8) == sorted([(64, 64), *wide, *((height, width) for width, height in wide)])


@pytest.mark.parametrize(("side", "step", "multiple"), [(512, 8, 32), (768, 8, 48), (1024, 8, 64), (1024, 16, 64)])
def test_sizes_have_one_area_and_never_more(side, step, multiple):
    sizes = bucket_sizes(side, step)
    assert (side, side) in sizes
    assert all(width % multiple == 0 and height % multiple == 0 for width, height in sizes)
    assert all(0.85 * side * side <= width * height <= side * side for width, height in sizes)
    assert max(width / height for width, height in sizes) == 4
    assert {(height, width) for width, height in sizes} == set(sizes)


def test_a_side_that_coarse_steps_do_not_divide_keeps_its_square():
    sizes = bucket_sizes(528, 8)
    assert (528, 528) in sizes
    assert all(side % 8 == 0 for size in sizes for side in size)


@pytest.mark.parametrize(
    ("size", "bucket"),
    [
        ((900, 900), (64, 64)),
        ((5, 3), (80, 48)),
        ((3000, 5000), (48, 80)),
        ((900, 10), (128, 32)),
        ((66, 64), (64, 64)),
    ],
)
def test_a_picture_goes_to_the_nearest_shape(size, bucket):
    assert nearest_bucket(size, bucket_sizes(64, 8)) == bucket


def test_pictures_of_one_size_are_one_bucket():
    assert group_by_size([(8, 8), (16, 4), (8, 8), (4, 16)]) == ((3,), (0, 2), (1,))


def test_a_batch_is_full_and_of_one_bucket():
    for epoch in range(5):
        batches = epoch_batches(BUCKETS, 2, 0, epoch)
        assert [len(batch) for batch in batches] == [2] * 5
        assert all(any(set(batch) <= set(bucket) for bucket in BUCKETS) for batch in batches)


def test_an_epoch_shows_every_picture_and_fills_up_with_those_of_the_same_bucket():
    for epoch in range(5):
        seen = Counter(number for batch in epoch_batches(BUCKETS, 2, 0, epoch) for number in batch)
        assert set(seen) == set(range(8))
        assert [seen[number] for number in (1, 2, 4, 6, 7)] == [2, 1, 1, 1, 1]
        assert sorted(seen[number] for number in (0, 3, 5)) == [1, 1, 2]


def test_the_order_is_a_function_of_seed_and_number():
    order = [batch_at(number, BUCKETS, 2, seed=7) for number in range(50)]
    epoch_batches.cache_clear()
    assert [batch_at(number, BUCKETS, 2, seed=7) for number in reversed(range(50))] == order[::-1]
    assert order[:5] == list(epoch_batches(BUCKETS, 2, 7, 0))
    assert order[45:] == list(epoch_batches(BUCKETS, 2, 7, 9))
    assert len({tuple(order[at : at + 5]) for at in range(0, 50, 5)}) == 10
    assert [batch_at(number, BUCKETS, 2, seed=8) for number in range(50)] != order
