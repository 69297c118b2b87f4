"""Which batches are guidance in two halves, and what of a call belongs to one half."""

from collections import OrderedDict
from typing import Any

import pytest
import torch
from diffusers import StableDiffusionInstructPix2PixPipeline, StableDiffusionPAGPipeline
from diffusers.models.unets.unet_2d_condition import UNet2DConditionOutput
from drawn_by_hand import Kind, close, word_of
from tiny_pipelines import draw, picture
from torch import Tensor
from zoo import TEXT, WIDTH, noise, text, tiny_pipeline
from zoo.models import unet

import todome
from todome import Reuse
from todome.hooks.halves import conditional_half, denoised, is_guided, output_of, rows_of, without_pictures

HAND = Reuse(every=2, warmup=0.05, stages=1)
ONE, OTHER, THIRD = (noise(1, 4, 8, 8, seed=seed) for seed in range(3))


@pytest.mark.parametrize(
    ("rows", "guided"),
    [
        ([ONE], False),
        ([ONE, ONE], True),
        ([ONE, OTHER], False),
        ([ONE, OTHER, ONE, OTHER], True),
        ([ONE, OTHER, THIRD] * 2, True),
        ([ONE, ONE, ONE], False),
        ([ONE, OTHER] * 3, False),
        ([ONE] * 6, False),  # or three pictures with one seed, which begin so
    ],
)
def test_guidance_is_told_by_equal_halves(rows: list[Tensor], guided: bool):
    assert is_guided(torch.cat(rows)) is guided


def test_pictures_behind_the_latents_may_differ():
    latents, pictures = torch.cat([ONE, ONE]), torch.cat([ONE * 0, OTHER])
    both = torch.cat([latents, pictures], 1)
    assert not is_guided(both)
    assert is_guided(without_pictures(both, (8, 4)))
    assert is_guided(without_pictures(both[:, None], (8, 4))), "frames before channels"
    assert without_pictures(latents, (4, 8)) is latents
    assert without_pictures(latents, None) is latents


def test_the_second_half_of_what_has_as_many_rows():
    rows = torch.arange(4)
    of_call = {
        "sample": rows,
        "added": {"text": rows[:, None], "image": [rows, None]},
        "residuals": (rows, rows),
        "timestep": torch.tensor(5),
        "once": torch.arange(1),
        "tokens": torch.arange(8),
        "ip_adapter_masks": [rows],
        "flag": True,
    }
    half = conditional_half(of_call, rows_of(torch.zeros(4, 4, 8, 8)))
    assert [part.tolist() for part in (half["sample"], half["added"]["image"][0])] == [[2, 3]] * 2
    assert half["added"]["text"].tolist() == [[2], [3]]
    assert [part.tolist() for part in half["residuals"]] == [[2, 3]] * 2
    assert half["added"]["image"][1] is None
    for name in ("timestep", "once", "tokens", "flag"):
        assert half[name] is of_call[name]
    assert half["ip_adapter_masks"][0] is rows


def test_the_frames_of_half_of_the_clips():
    frames = torch.arange(4 * 3)
    assert conditional_half(frames, rows_of(torch.zeros(4, 4, 3, 8, 8))).tolist() == [*range(6, 12)]


@pytest.mark.parametrize("channels", [4, 9])
def test_what_the_output_says_something_of(channels: int):
    latents = noise(2, channels, 8, 8)
    found = denoised(latents, torch.zeros(2, 4, 8, 8))
    assert found is not None
    assert found.equal(latents[:, :4])


def test_variances_behind_the_output_go_on_by_themselves():
    found = denoised(ONE, torch.zeros(1, 8, 8, 8))
    assert found is not None
    assert found.equal(torch.cat([ONE, ONE * 0], 1))


def test_an_output_of_another_kind_goes_on_by_itself():
    assert denoised(ONE, torch.zeros(1, 4)) is None
    assert denoised(ONE, torch.zeros(1, 8, 16, 8)) is None
    assert denoised(ONE, torch.zeros(2, 4, 8, 8)) is None


@pytest.mark.parametrize("output", [ONE, (ONE,), UNet2DConditionOutput(sample=ONE)], ids=["tensor", "tuple", "class"])
def test_an_output_is_handed_over_as_the_model_does(output: Any):
    found = output_of(output)
    assert found is not None
    tensor, form = found
    assert tensor is ONE
    again = form.around(OTHER)
    assert type(again) is type(output)
    assert (again if isinstance(again, Tensor) else again[0]) is OTHER


@pytest.mark.parametrize("output", [None, (ONE, ONE), [[ONE]], OrderedDict(sample=ONE), UNet2DConditionOutput()])
def test_any_other_output_is_left_alone(output: Any):
    assert output_of(output) is None


def rows_in(pipe: Any) -> list[int]:
    rows: list[int] = []
    pipe.unet.conv_in.register_forward_pre_hook(lambda module, args: rows.append(len(args[0])))
    return rows


def drawn(kind: Kind, lever: Reuse, **options: Any) -> tuple[list[int], str]:
    """How many rows were computed, call by call, and the word; the picture is the one by hand."""
    pipe = kind.build()
    patch, rows = todome.apply(pipe, lever), rows_in(pipe)
    result = kind.draw(pipe, **options)
    close(result, kind.by_hand(word_of(patch), **options))
    return rows, word_of(patch)


def one_seed(pictures: int) -> dict[str, Any]:
    return {"generator": [torch.Generator().manual_seed(0) for _ in range(pictures)]}


SD = Kind("sd", lambda: tiny_pipeline(unet=unet()), draw)


def draw_same_seed(pipe: Any, **options: Any) -> Tensor:
    unguided = {"guidance_scale": 1.0, "negative_prompt_embeds": None, "prompt_embeds": noise(2, TEXT, WIDTH)}
    return draw(pipe, **unguided | one_seed(2) | options)


def test_pictures_with_one_seed_are_not_taken_for_guidance():
    rows, word = drawn(Kind("same seed", SD.build, draw_same_seed), HAND)
    assert word == "FFFFSFSFSF", "deep features of the first step were kept of a half, and are forgotten"
    assert set(rows) == {2}


def test_equal_pictures_may_be_taken_for_guidance():
    """Their difference is none, whatever it is multiplied with."""
    equal = {"prompt_embeds": text(1).expand(2, -1, -1)}
    rows, word = drawn(Kind("equal", SD.build, draw_same_seed), HAND, **equal)
    assert word == "FFsFsFsFsF"
    assert set(rows) == {1, 2}


def test_two_guided_pictures_with_one_seed():
    words = {"prompt_embeds": noise(2, TEXT, WIDTH), "negative_prompt_embeds": text(2)}
    pipe = SD.build()
    todome.apply(pipe, HAND)
    rows = rows_in(pipe)
    close(draw(pipe, **words, **one_seed(2)), SD.by_hand("FFsFsFsFsF", **words, **one_seed(2)))
    assert rows == [4, 4, 2, 4, 2, 4, 2, 4, 2, 4]


def pix2pix() -> Any:
    return tiny_pipeline(unet=unet(in_channels=8), kind=StableDiffusionInstructPix2PixPipeline, image_encoder=None)


def draw_pix2pix(pipe: Any, **options: Any) -> Tensor:
    given = {"image": picture(), "num_inference_steps": 10, "output_type": "latent"}
    words = {"prompt_embeds": text(1), "negative_prompt_embeds": text(1) * 0}
    return pipe(**given | words | {"generator": torch.Generator().manual_seed(0)} | options).images


@pytest.mark.parametrize("count", [1, 2])
def test_three_parts_are_not_taken_for_halves(count: int):
    options: dict[str, Any] = {}
    if count == 2:
        options = {name: text(2) for name in ("prompt_embeds", "negative_prompt_embeds")}
        options |= {"image": picture().expand(2, -1, -1, -1)}
    pipe = pix2pix()
    patch, rows = todome.apply(pipe, HAND), rows_in(pipe)
    result = draw_pix2pix(pipe, **options, **one_seed(count))
    assert word_of(patch) == "FFSFSFSFSF"
    assert set(rows) == {3 * count}
    close(result, Kind("", pix2pix, draw_pix2pix).by_hand("FFSFSFSFSF", **options, **one_seed(count)))


def pag() -> Any:
    return tiny_pipeline(unet=unet(), kind=StableDiffusionPAGPipeline, pag_applied_layers="mid")


@pytest.mark.parametrize(("scale", "count"), [(5.0, 3), (1.0, 2)])
@pytest.mark.parametrize("pictures", [1, 2])
def test_perturbed_attention_is_drawn_whole(scale: float, count: int, pictures: int):
    options: dict[str, Any] = {"pag_scale": 3.0, "guidance_scale": scale, "prompt_embeds": noise(pictures, TEXT, WIDTH)}
    options |= {"negative_prompt_embeds": text(pictures)}
    pipe = pag()
    patch, rows = todome.apply(pipe, HAND), rows_in(pipe)
    result = draw(pipe, **options, **one_seed(pictures))
    assert word_of(patch) == "FFSFSFSFSF"
    assert set(rows) == {count * pictures}
    close(result, Kind("", pag, draw).by_hand("FFSFSFSFSF", **options, **one_seed(pictures)))
