"""What the tests of state share: runs that pause after each step, and what a model computes in each call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sampling import SCHEDULERS
from torch import Tensor
from zoo import SIDE, noise, small_unet, text

import todome
from todome import Reuse

HAND = Reuse(every=2, warmup=0.3, stages=1)
STEPS = 12
FORMS: dict[str, Callable[[Tensor], Any]] = {
    "view": lambda t: t,
    "expanded": lambda t: t.expand(2),
    "in a batch": lambda t: t[None],
    "copied": lambda t: t.clone(),
    "cast": lambda t: t.to(torch.float64),
    "number": lambda t: t.item(),
}
VIEWS, COPIES = list(FORMS)[:3], list(FORMS)[3:]


def guided(unet: Any, sample: Tensor, timestep: Any, words: int = 2) -> Tensor:
    """One call with guidance in a batch of two for each picture."""
    with torch.no_grad():
        unconditional, conditional = unet(torch.cat([sample] * 2), timestep, text(words)).sample.chunk(2)
    return unconditional + 5 * (conditional - unconditional)


def steps_of(
    unet: Any,
    scheduler: Any,
    seed: int = 0,
    form: Any = FORMS["view"],
    steps: int = STEPS,
    first: int = 0,
    set_up: bool = True,
    predict: Any = guided,
    side: int = SIDE,
) -> Iterator[Tensor]:
    """A run that pauses after each step. What it yields last is the picture."""
    if set_up:
        scheduler.set_timesteps(steps)
    sample = noise(1, 4, side, side, seed=seed)
    scale = getattr(scheduler, "scale_model_input", lambda sample, _: sample)  # flows have none
    for timestep in scheduler.timesteps[first:]:
        output = predict(unet, scale(sample, timestep), form(timestep))
        sample = scheduler.step(output, timestep, sample).prev_sample
        yield sample


def last_of(run: Iterator[Tensor]) -> Tensor:
    *_, picture = run
    return picture


def followed(name: str = "DDIM", runs: int = 1, lever: Any = HAND) -> tuple[Any, list[Any]]:
    """A UNet, and several schedulers that its patch follows."""
    unet, schedulers = small_unet().requires_grad_(False), [SCHEDULERS[name]() for _ in range(runs)]
    for scheduler in schedulers:
        todome.apply(unet, lever, scheduler=scheduler)
    return unet, schedulers


@contextmanager
def computed(unet: Any, rows: int = 2) -> Iterator[list[str]]:
    """What a model computes: all of it (F), both halves of the first stage (S), one half of all (f) or of that (s)."""
    word: list[str] = []

    def begin(module: Any, args: Any) -> None:
        word.append("S" if len(args[0]) == rows else "s")

    def middle(module: Any, args: Any, output: Any) -> None:
        word[-1] = {"S": "F", "s": "f"}[word[-1]]

    hooks = [unet.conv_in.register_forward_pre_hook(begin), unet.mid_block.register_forward_hook(middle)]
    try:
        yield word
    finally:
        for hook in hooks:
            hook.remove()


def dense(unet: Any, scheduler: Any, **options: Any) -> Tensor:
    """The picture of a run without any patch."""
    todome.remove(unet)
    return last_of(steps_of(unet, scheduler, **options))
