"""Checkpoints in one file: what is opened computes what the original classes compute, from the same file."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import originals
import pytest
import torch
from diffusers.models.embeddings import get_timestep_embedding
from diffusers.utils import logging as notes
from PIL import Image
from torch import Tensor

import todome
from todome.tools.checkpoints.opening import predicts_noise
from todome.tools.checkpoints.tokenizer import merges
from todome.tools.measuring.subjects import own_size
from todome.tools.pipelines import open_pipeline


@functools.cache
def open_once(path: Path) -> Any:
    """The pipeline, for tests that leave it as it is."""
    return open_pipeline(path, "cpu")


@functools.cache
def original_of(name: str) -> Any:
    return getattr(originals, name)()


@pytest.fixture(scope="module", params=["sd1", "sd2", "sdxl"])
def opened(request: pytest.FixtureRequest, files: Path) -> tuple[str, Any, Any]:
    """Name, original module, pipeline."""
    name = request.param
    return name, original_of(name), open_once(files / f"{name}.safetensors")


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def test_the_unet_computes_the_same(opened):
    name, original, pipe = opened
    latents, words = noise(1, 4, 16, 16), noise(1, 77, pipe.unet.config.cross_attention_dim)
    time, unet = torch.tensor([500]), original.model.diffusion_model
    if name == "sdxl":
        pooled, sizes = noise(1, originals.SECOND), torch.tensor([[512.0, 512, 0, 0, 512, 512]])
        added = {"text_embeds": pooled, "time_ids": sizes}
        numbers = get_timestep_embedding(sizes.flatten(), 256, flip_sin_to_cos=True, downscale_freq_shift=0)
        expected = unet(latents, time, [words, words], y=torch.cat([pooled, numbers.view(1, -1)], -1))
        found = pipe.unet(latents, 500, words, added_cond_kwargs=added).sample
    else:
        expected, found = unet(latents, time, words), pipe.unet(latents, 500, words).sample
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_the_decoder_computes_the_same(opened):
    _, original, pipe = opened
    expected = original.first_stage_model.decode(noise(1, 4, 16, 16))
    torch.testing.assert_close(pipe.vae.decode(noise(1, 4, 16, 16)).sample, expected, rtol=1e-3, atol=1e-3)
    assert pipe.vae.config.scaling_factor == (0.13025 if opened[0] == "sdxl" else 0.18215)


@torch.no_grad()
def test_the_text_encoders_compute_the_same(opened):
    name, original, pipe = opened
    words = pipe.tokenizer("a red tulip", padding="max_length", return_tensors="pt").input_ids
    found = pipe.text_encoder(words)[0]
    if name == "sd1":
        expected = original.cond_stage_model.transformer(words)[0]
    elif name == "sd2":  # the last layer is left out
        clip = original.cond_stage_model.model
        expected = clip.ln_final(clip.layer(words, 23))
    else:
        expected = original.conditioner.embedders[0].transformer(words)[0]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_the_second_text_encoder_computes_the_same(files):
    clip = original_of("sdxl").conditioner.embedders[1].model
    pipe = open_once(files / "sdxl.safetensors")
    words = pipe.tokenizer_2("a red tulip", padding="max_length", return_tensors="pt").input_ids
    found = pipe.text_encoder_2(words, output_hidden_states=True)
    torch.testing.assert_close(found.hidden_states[-2], clip.layer(words, 31), rtol=1e-3, atol=1e-3)
    end = words[0].argmax()
    pooled = clip.ln_final(clip.layer(words, 32))[:, end] @ clip.text_projection
    torch.testing.assert_close(found.text_embeds, pooled, rtol=1e-3, atol=1e-3)


def test_it_draws_reduced(opened):
    pipe = opened[2]
    pipe.set_progress_bar_config(disable=True)
    with todome.apply(pipe, todome.Downsample(2)) as patch:
        picture = pipe("a rose", width=128, height=96, num_inference_steps=2, output_type="np").images[0]
    assert picture.shape == (96, 128, 3)
    assert np.isfinite(picture).all()
    assert "level 1" in str(patch)


def test_tokens_are_those_of_clip(files):
    """The numbers of some words, as everybody who uses CLIP has them."""
    pipe = open_once(files / "sdxl.safetensors")
    begin, end = 49406, 49407
    assert pipe.tokenizer("a photo of a cat").input_ids == [begin, 320, 1125, 539, 320, 2368, end]
    assert pipe.tokenizer("A  Photo OF\na cat").input_ids == [begin, 320, 1125, 539, 320, 2368, end]
    padded = (tokenizer("", padding="max_length").input_ids for tokenizer in (pipe.tokenizer, pipe.tokenizer_2))
    assert [words[:3] for words in padded] == [[begin, end, end], [begin, end, 0]]
    assert (len(pipe.tokenizer), len(merges())) == (49408, 48894)


@pytest.mark.parametrize(("name", "side"), [("sd1", 512), ("sd2", 768), ("sdxl", 1024)])
def test_its_own_size(files, name, side):
    """Of 2.x, 768: a model of random weights does not give back the noise it is asked about."""
    assert own_size(open_once(files / f"{name}.safetensors")) == (side, side)


@pytest.mark.parametrize(("said", "kind"), [("epsilon", "epsilon"), ("v", "v_prediction")])
def test_what_the_file_says_it_predicts_is_believed(tmp_path, said, kind):
    path = originals.sd2().write(tmp_path / "said.safetensors", {"modelspec.prediction_type": said})
    assert open_pipeline(path, "cpu").scheduler.config.prediction_type == kind


def test_an_sdxl_that_says_so_by_a_tensor(tmp_path):
    path = originals.sdxl().write(tmp_path / "v.safetensors", v_pred=torch.tensor([]), ztsnr=torch.tensor([]))
    config = open_pipeline(path, "cpu").scheduler.config
    assert (config.prediction_type, config.rescale_betas_zero_snr) == ("v_prediction", True)


def test_what_a_trained_model_predicts_can_be_asked(flowers):
    """The embedded model predicts v. Made to predict noise from it, it gives back the noise it is asked about."""
    assert flowers.scheduler.config.prediction_type == "v_prediction"
    assert not predicts_noise(flowers)
    signal = flowers.scheduler.alphas_cumprod[999].sqrt()
    rest = (1 - signal**2).sqrt()

    def as_noise(module: Any, args: Any, output: Any) -> Any:
        return type(output)(sample=signal * output.sample + rest * args[0])

    handle = flowers.unet.register_forward_hook(as_noise)
    try:
        assert predicts_noise(flowers)
    finally:
        handle.remove()


def test_opening_leaves_no_files_and_no_notes_changed(files, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = notes.get_verbosity()
    open_pipeline(files / "sd1.safetensors", "cpu")
    assert notes.get_verbosity() == before
    assert not list(tmp_path.iterdir())


def test_generate_draws_from_it_and_makes_it_again(files, run):
    model, asked = files / "sd1.safetensors", ("--steps", 2, "--size", "64x96", "--factor", 2, "--device", "cpu")
    result = run("generate", "a rose", "--model", model, "-o", "a.png", *asked)
    assert result.exit_code == 0, result.output
    with Image.open("a.png") as picture:
        assert picture.size == (64, 96)
    assert run("generate", "--like", "a.png", "--model", model, "--device", "cpu", "-o", "b.png").exit_code == 0
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


@pytest.mark.thorough
def test_explain_bench_and_eval_open_it(files, run):
    model, small = files / "sd1.safetensors", ("--size", 64, "--device", "cpu")
    result = run("explain", model, "--factor", 2, *small)
    assert "level 1, 5 layers: 8x8 = 64 keys -> 16" in result.stdout, result.output
    result = run("bench", model, "--methods", "todome:2", "--rounds", 1, "--seconds", 0, *small)
    assert "todome:2" in result.stdout, result.output
    Path("p.txt").write_text("a rose")
    result = run("eval", model, "--prompts", "p.txt", "--methods", "todome:2", "-n", 1, "--steps", 2, "-o", "e", *small)
    assert "64x64 pixels, 1 picture of each" in result.stdout, result.output
