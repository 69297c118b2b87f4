"""Jobs: one picture each, with a key made of all that it depends on. The same key is the same picture."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from ...levers.plan import Plan
from ..metadata import reduction_to_dict
from ..settings import Settings
from .rows import Row, row_settings

DIGITS = 20  # of a key: among a million, two are alike once in 10**12 times


@dataclass(frozen=True)
class Job:
    """A picture to draw."""

    key: str
    row: int  # its number in the file
    settings: Settings


def jobs_from(rows: Mapping[int, Row], base: Settings, count: int = 1) -> dict[str, Job]:
    """Jobs by key, `count` of each row with one seed after the other. What is asked for twice is there once."""
    jobs: dict[str, Job] = {}
    load = cache(Plan.load)  # thousands of rows may name one
    for number, row in rows.items():
        settings = row_settings(number, row, base, load)
        for more in range(count):
            one = replace(settings, seed=settings.seed + more)
            key = key_of(one)
            jobs.setdefault(key, Job(key, number, one))
    return jobs


def key_of(settings: Settings) -> str:
    """The device is left out: it is to make no difference, and a cluster has many."""
    content = {**described(settings), "device": None}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:DIGITS]


def described(settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "reduction": reduction_to_dict(settings.reduction)}


def batches_of(jobs: Iterable[Job], most: int) -> list[Sequence[Job]]:
    """Jobs that differ in prompt, negative prompt and seed alone, up to so many at a time, in the order of rows."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(call_of(job.settings), []).append(job)
    return [group[at : at + most] for group in groups.values() for at in range(0, len(group), most)]


def call_of(settings: Settings) -> str:
    """What is the same for all pictures of one call. No negative prompt is not an empty one: SDXL has zeros for it."""
    return json.dumps({**described(settings), "prompt": "", "seed": 0, "negative": bool(settings.negative)})
