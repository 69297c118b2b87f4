"""Dense, ToMe, ToDo and todome side by side on the embedded model: how fast, how close to dense."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from PIL import Image

from ..levers.downsample import Downsample
from ..levers.lever import TokenLever
from ..levers.merge import Merge
from .generate import Generated, Settings, make_picture
from .machine import chip
from .measuring import tables
from .pictures import BRIGHTER, as_tensor, difference
from .pipelines import format_size
from .sheets import Column, draw_sheet

METHODS: dict[str, TokenLever | None] = {
    "dense": None,
    "ToMe": Merge(0.5),
    "ToDo": Downsample(2, phase="fixed"),
    "todome": Downsample(2),
}
NOTES = {
    "dense": "every token",
    "ToMe": "half of the tokens merged",
    "ToDo": "1 token in 4, always the same",
    "todome": "1 token in 4, new at each step",
}


@dataclass(frozen=True)
class Result:
    """One method's picture, next to the dense one."""

    name: str
    made: Generated
    dense: Generated

    @property
    def speedup(self) -> float:
        return self.dense.seconds / self.made.seconds

    @property
    def closeness(self) -> str:
        """PSNR to dense."""
        from .metrics import psnr

        value = psnr(as_tensor(self.made.picture), as_tensor(self.dense.picture)).item()
        return "the same" if math.isinf(value) else f"{value:.1f} dB"


def compare(pipe: Any, settings: Settings) -> list[Result]:
    """Every method's picture with the same settings, after a step to warm up."""
    made: dict[str, Generated] = {}
    pipe.set_progress_bar_config(disable=True)
    make_picture(replace(settings, reduction=None, steps=1), pipe)
    for name, reduction in METHODS.items():
        pipe.set_progress_bar_config(desc=f"{name:>6}", disable=None)
        made[name] = make_picture(replace(settings, reduction=reduction), pipe)
    return [Result(name, one, made["dense"]) for name, one in made.items()]


TABLE = (
    tables.Column("method", lambda result: result.name),
    tables.Column("attention looks at", lambda result: NOTES[result.name]),
    tables.Column("seconds", lambda result: result.made.seconds, "{:.1f}"),
    tables.Column("speed-up", lambda result: result.speedup, "{:.2f}x"),
    tables.Column("PSNR to dense", lambda result: None if result.made is result.dense else result.closeness),
)


def as_table(results: Sequence[Result]) -> str:
    return tables.markdown(TABLE, results)


def as_sheet(results: Sequence[Result]) -> Image.Image:
    settings = results[0].made.settings
    subtitle = f"{format_size(results[0].made.picture.size)} pixels, {settings.steps} steps, seed {settings.seed}, "
    subtitle += f"{settings.model}, {chip(torch.device(settings.device))}"
    note = f"To the right: where each picture differs from the dense one, {BRIGHTER} times as bright."
    return draw_sheet(settings.prompt or "(no prompt)", subtitle, [as_column(result) for result in results], note)


def as_column(result: Result) -> Column:
    seconds = f"{result.made.seconds:.1f} s"
    if result.made is result.dense:
        return Column(result.made.picture, result.name, [NOTES[result.name], seconds])
    lines = [
        NOTES[result.name],
        f"{seconds}, {result.speedup:.2f}x as fast",
        f"PSNR to dense: {result.closeness}",
    ]
    below = difference(result.made.picture, result.dense.picture)
    return Column(result.made.picture, result.name, lines, below)
