"""Reuse over steps on every kind of model: the picture is the one that is drawn by hand, and work is left out."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from drawn_by_hand import by_hand, from_alphas, from_sigmas, of_noise, of_picture, of_velocity
from diffusers import DDIMScheduler
from tiny_pipelines import (
    STEPS, animation, clip, draw, draw_clip, draw_inpainting, draw_kandinsky, draw_sdxl, draw_unconditional,
    draw_video, inpainting, kandinsky, sdxl_pipeline, unconditional, video,
)
from torch import Tensor, nn
from zoo import tiny_pipeline
from zoo.models import unet

import todome
from todome import Reuse


@dataclass(frozen=True)
class Kind:
    """A kind of pipeline, and how it is drawn with."""

    name: str
    build: Callable[[], Any]
    draw: Callable[..., Tensor] = draw
    levels: Callable[[Any], list[float]] = from_alphas
    place: Callable[[float], Any] = of_noise
    guided: bool = True
    rows: int = 1  # of the first convolution, of one half

    def __str__(self) -> str:
        return self.name


def predicting(prediction: str) -> Callable[[], Any]:
    scheduler = lambda: DDIMScheduler(steps_offset=1, clip_sample=False, prediction_type=prediction)
    return lambda: tiny_pipeline(scheduler(), unet())


KINDS = [
    Kind("sd", lambda: tiny_pipeline(unet=unet())),
    Kind("sdxl", sdxl_pipeline, draw_sdxl),
    Kind("v-prediction", predicting("v_prediction"), place=of_velocity),
    Kind("x0-prediction", predicting("sample"), place=of_picture),
    Kind("inpainting", inpainting, draw_inpainting),
    Kind("animatediff", animation, rows=16),
    Kind("unet3d", clip, draw_clip, rows=2),
    Kind("svd", video, draw_video, from_sigmas, of_velocity, rows=2),
    Kind("kandinsky", kandinsky, draw_kandinsky),
    Kind("unconditional", unconditional, draw_unconditional, guided=False, rows=2),
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)

HAND = {
    "one stage": (Reuse(every=2, warmup=0.3, stages=1), "s"),
    "two stages": (Reuse(every=2, warmup=0.3, stages=2), "d"),
    "nothing": (Reuse(every=2, warmup=0.3, stages=0), "o"),
    "one stage of both": (Reuse(every=2, warmup=0.3, stages=1, guidance=False), "S"),
}


class Work:
    """How many rows went into the first module of each stage, call by call."""

    def __init__(self, model: Any) -> None:
        self.rows: dict[str, list[int]] = {}
        self.stages = {"first": model.conv_in, "middle": model.mid_block}
        self.stages |= {str(number): block for number, block in enumerate(model.down_blocks, 1)}

    def note(self, name: str) -> Callable[..., None]:
        to = self.rows.setdefault(name, [])
        return lambda module, args, kwargs: to.append(len(args[0] if args else kwargs["hidden_states"]))


@contextmanager
def work_of(model: Any) -> Iterator[dict[str, list[int]]]:
    work = Work(model)
    hooks = [part.register_forward_pre_hook(work.note(name), with_kwargs=True) for name, part in work.stages.items()]
    yield work.rows
    for hook in hooks:
        hook.remove()


def expected_work(kind: Kind, word: str) -> dict[str, list[int]]:
    half, whole = kind.rows, kind.rows * (2 if kind.guided else 1)
    rows = [(letter, half if letter in "fsdt" else whole) for letter in word]
    deepest = {"F": 9, "f": 9, "o": 0} | dict(zip("sSdDtT", (1, 1, 2, 2, 3, 3)))
    stage = {"first": 1, "1": 1, "2": 2, "3": 3, "middle": 4}
    return {name: [count for letter, count in rows if deepest[letter] >= own] for name, own in stage.items()}


def word_of(patch: todome.Patch) -> str:
    done = patch._places[0].states[0].report.done
    return "".join(done[index] for index in sorted(done))


def joints_of(model: Any) -> dict[int, nn.Module]:
    return {number: model.up_blocks[-1 - number] for number in range(1, len(model.up_blocks))}


def drawn_by_hand(kind: Kind, word: str) -> Tensor:
    pipe = kind.build()
    levels = lambda: kind.levels(pipe.scheduler)
    with by_hand(pipe.unet, word, levels, kind.place, joints_of(pipe.unet)):
        return kind.draw(pipe)


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().mean()))


@pytest.mark.parametrize("hand", HAND)
@each_kind
def test_by_hand(kind: Kind, hand: str):
    lever, letter = HAND[hand]
    if not kind.guided:
        letter = letter.upper() if letter != "o" else "o"
    pipe = kind.build()
    patch = todome.apply(pipe, lever)
    with work_of(pipe.unet) as rows:
        picture = kind.draw(pipe)
    word = f"FFF{letter}F{letter}F{letter}FF"
    assert word_of(patch) == word
    close(picture, drawn_by_hand(kind, word))
    expected = expected_work(kind, word)
    assert {name: rows[name] for name in expected} == expected
    patch.remove()
    assert not torch.allclose(kind.draw(pipe), picture, rtol=1e-4)


@each_kind
def test_keep(kind: Kind):
    pipe = kind.build()
    patch = todome.apply(pipe, Reuse(keep=40))
    picture = kind.draw(pipe)
    word = word_of(patch)
    close(picture, drawn_by_hand(kind, word))
