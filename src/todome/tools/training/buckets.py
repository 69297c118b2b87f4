"""Pictures of many shapes in batches of one shape each: pure functions of sizes, a seed and a number."""

import itertools
import math
import random
from collections.abc import Sequence
from functools import lru_cache

from ..pipelines import Size

STEPS = 16  # in the side of the square bucket: fine enough to cut little away, coarse enough to fill batches
Buckets = tuple[tuple[int, ...], ...]  # the numbers of the pictures in each


def bucket_sizes(side: int, step: int) -> list[Size]:
    """Widths and heights of about the same area, side x side and never more, up to four times as wide as high.

    Args:
        side: Side of the square bucket, in pixels.
        step: The multiples in which the model takes pictures, in pixels.
    """
    step *= math.ceil(side / STEPS / step)
    wide = [(width, side * side // width // step * step) for width in range(side + step, 2 * side + 1, step)]
    return sorted({(side, side), *(size for width, height in wide for size in ((width, height), (height, width)))})


def nearest_bucket(size: Size, buckets: Sequence[Size]) -> Size:
    """The bucket whose shape is nearest to that of a picture."""

    def distance(bucket: Size) -> float:
        return abs(math.log(bucket[0] / bucket[1]) - math.log(size[0] / size[1]))

    return min(buckets, key=distance)


def group_by_size(sizes: Sequence[Size]) -> Buckets:
    """The numbers of the pictures that share a bucket."""
    by_size = sorted(range(len(sizes)), key=lambda number: (sizes[number], number))
    return tuple(tuple(numbers) for _, numbers in itertools.groupby(by_size, key=lambda number: sizes[number]))


def batch_at(number: int, buckets: Buckets, batch: int, seed: int) -> tuple[int, ...]:
    """The pictures of a batch, of all batches that will ever be: the same for every process, and after a resume."""
    epoch, place = divmod(number, sum(math.ceil(len(bucket) / batch) for bucket in buckets))
    return epoch_batches(buckets, batch, seed, epoch)[place]


@lru_cache(maxsize=2)
def epoch_batches(buckets: Buckets, batch: int, seed: int, epoch: int) -> tuple[tuple[int, ...], ...]:
    """Every picture in a random order; where a bucket does not fill its last batch, its first ones come again."""
    chance, batches = random.Random(f"{seed}/{epoch}"), []
    for bucket in buckets:
        shuffled = itertools.cycle(chance.sample(bucket, len(bucket)))
        batches += [tuple(itertools.islice(shuffled, batch)) for _ in range(math.ceil(len(bucket) / batch))]
    chance.shuffle(batches)
    return tuple(batches)
