"""Reuse over steps on UNets of every kind: the picture is the one that is drawn by hand, and work is left out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel
from drawn_by_hand import Kind, close, from_sigmas, of_picture, of_velocity, word_of
from tiny_pipelines import (
    animation,
    assembled,
    clip,
    draw,
    draw_clip,
    draw_inpainting,
    draw_kandinsky,
    draw_sdxl,
    draw_unconditional,
    draw_video,
    inpainting,
    kandinsky,
    sdxl_pipeline,
    unconditional,
    video,
)
from zoo import ddim, lively, tiny_pipeline
from zoo.models import FRAMES, unet

import todome
from todome import Reuse


def predicting(prediction: Any) -> Any:
    scheduler = DDIMScheduler(steps_offset=1, clip_sample=False, prediction_type=prediction)
    return tiny_pipeline(scheduler, unet())


KINDS = [
    Kind("sd", lambda: tiny_pipeline(unet=unet()), draw),
    Kind("sdxl", sdxl_pipeline, draw_sdxl),
    Kind("v-prediction", lambda: predicting("v_prediction"), draw, place=of_velocity),
    Kind("x0-prediction", lambda: predicting("sample"), draw, place=of_picture),
    Kind("inpainting", inpainting, draw_inpainting),
    Kind("animatediff", animation, draw_clip, rows=FRAMES),
    Kind("unet3d", clip, draw_clip, rows=FRAMES),
    Kind("svd", video, draw_video, from_sigmas, of_velocity, rows=FRAMES),
    Kind("kandinsky", kandinsky, draw_kandinsky),
    Kind("unconditional", unconditional, draw_unconditional, guided=False, rows=2),
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
SD, UNGUIDED = KINDS[0], KINDS[-1]
HAND = {
    "one stage": (Reuse(every=2, warmup=0.3, stages=1), "s"),
    "two stages": (Reuse(every=2, warmup=0.3, stages=2), "d"),
    "nothing": (Reuse(every=2, warmup=0.3, stages=0), "o"),
    "one stage of both": (Reuse(every=2, warmup=0.3, stages=1, guidance=False), "S"),
}


@contextmanager
def work_of(model: Any) -> Iterator[dict[str, list[int]]]:
    """How many rows go into the first module of each stage, call by call."""
    stages = {"first": model.conv_in, "middle": model.mid_block}
    stages |= {str(number): block for number, block in enumerate(model.down_blocks, 1)}
    rows: dict[str, list[int]] = {name: [] for name in stages}

    def note(name: str) -> Callable[..., None]:
        return lambda module, args, kwargs: rows[name].append(len(args[0] if args else kwargs["hidden_states"]))

    hooks = [part.register_forward_pre_hook(note(name), with_kwargs=True) for name, part in stages.items()]
    yield rows
    for hook in hooks:
        hook.remove()


def expected_work(kind: Kind, word: str) -> dict[str, list[int]]:
    """The same, as a word says it."""
    whole = kind.rows * (2 if kind.guided else 1)
    rows = [(letter, kind.rows if letter in "fsd" else whole) for letter in word]
    deepest = {"F": 9, "f": 9, "o": 0, "S": 1, "s": 1, "D": 2, "d": 2}
    stages = {"first": 1, "1": 1, "2": 2, "3": 3, "middle": 4}
    return {name: [count for letter, count in rows if deepest[letter] >= own] for name, own in stages.items()}


@pytest.mark.parametrize("hand", HAND)
@each_kind
def test_by_hand(kind: Kind, hand: str):
    lever, letter = HAND[hand]
    letter = letter if kind.guided or letter == "o" else letter.upper()
    pipe = kind.build()
    patch = todome.apply(pipe, lever)
    with work_of(pipe.unet) as rows:
        picture = kind.draw(pipe)
    word = f"FFF{letter}F{letter}F{letter}FF"
    assert word_of(patch) == word
    expected = expected_work(kind, word)
    assert {name: rows[name] for name in expected} == expected
    close(picture, kind.by_hand(word))
    patch.remove()
    assert not torch.allclose(kind.draw(pipe), picture, rtol=1e-4)


@each_kind
def test_as_close_as_asked(kind: Kind):
    pipe = kind.build()
    patch = todome.apply(pipe, Reuse(keep=40))
    picture = kind.draw(pipe, num_inference_steps=20)
    word = word_of(patch)
    assert set(word) > {"F"}
    close(picture, kind.by_hand(word, num_inference_steps=20))


def skipping() -> Any:
    """NCSN++: its blocks hand a picture on beside their features."""
    blocks: Any = {"down_block_types": ("SkipDownBlock2D",) * 3, "up_block_types": ("SkipUpBlock2D",) * 3}
    sizes: Any = {"block_out_channels": (32,) * 3, "layers_per_block": 1, "attention_head_dim": 4}
    return assembled(
        DDIMPipeline, unet=lively(lambda: UNet2DModel(sample_size=16, **blocks, **sizes)), scheduler=ddim()
    )


def without_middle() -> Any:
    return tiny_pipeline(unet=unet(mid_block_type=None))


@pytest.mark.parametrize("kind", [replace(UNGUIDED, build=skipping), replace(SD, build=without_middle)], ids=str)
def test_a_unet_without_known_stages_goes_by_its_output(kind: Kind):
    pipe = kind.build()
    patch = todome.apply(pipe, Reuse(every=2))
    close(kind.draw(pipe), kind.by_hand("FFFoFoFoFF"))
    assert word_of(patch) == "FFFoFoFoFF"


def test_more_stages_than_there_are_is_all_of_them():
    pipe = SD.build()
    patch = todome.apply(pipe, Reuse(every=2, stages=4))
    close(SD.draw(pipe), SD.by_hand("FFFfFfFfFF"))
    assert word_of(patch) == "FFFfFfFfFF"


def test_three_stages_of_four():
    """Of the deepest one the middle alone is left."""
    pipe = SD.build()
    patch = todome.apply(pipe, Reuse(every=2, stages=3))
    close(SD.draw(pipe), SD.by_hand("FFFtFtFtFF"))
    assert word_of(patch) == "FFFtFtFtFF"
