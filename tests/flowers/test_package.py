"""The embedded model as it is shipped: complete, small, without pickles, trained, and an ordinary pipeline."""

# The comments "measured" are about weights: ca5835b65505024d

import json
from pathlib import Path
from typing import Any

import pytest
import todome_flowers
import torch
from diffusers import StableDiffusionPipeline
from safetensors import safe_open
from torch import Tensor
from words import vocabulary

import todome
from todome.tools.metrics import psnr
from todome.tools.quiet import quiet_loading
from todome.tools.schedulers import SCHEDULERS, use_scheduler
from todome.tools.tuning.layers import fingerprint

FILES = {
    "model_index.json",
    "scheduler/scheduler_config.json",
    "text_encoder/config.json",
    "text_encoder/model.safetensors",
    "tokenizer/merges.txt",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
    "tokenizer/vocab.json",
    "unet/config.json",
    "unet/diffusion_pytorch_model.safetensors",
    "vae/config.json",
    "vae/diffusion_pytorch_model.safetensors",
}
LARGEST = 45e6  # bytes of everything
STRANGE_PROMPTS = [
    "",
    " ",
    "zorbly",
    "красный тюльпан",
    "赤いチューリップ",
    "naïve 🌷🌷",
    "\0\n\t",
    "</w>",
    "rose " * 500,
]
# A prompt, the same with a word that no dictionary has, and the same in another colour.
UNKNOWN_WORDS = [
    ("a red tulip", "a red tulip zorbly", "a yellow tulip"),
    ("a red tulip", "glimf a red tulip", "a white tulip"),
    ("a yellow rose", "a yellow rose blorptag", "a red rose"),
    ("a red rose", "a red snorpel rose", "a white rose"),
    ("a white dandelion", "a white dandelion frundle", "a yellow dandelion"),
]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("The network was asked.")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)


def read_json(name: str) -> Any:
    return json.loads((todome_flowers.path() / name).read_text(encoding="utf-8"))


def picture(pipe: Any, prompt: str = "a red tulip", seed: int = 0, side: int = 64, **options: Any) -> Tensor:
    options = {"num_inference_steps": 2, "height": side, "width": side, "output_type": "pt", **options}
    return pipe(prompt, generator=torch.Generator().manual_seed(seed), **options).images


def smooth_picture(side: int = 128) -> Tensor:
    """Slopes and a wave, (1, 3, side, side) from 0 to 1."""
    slope = torch.linspace(0, 1, side)
    x, y = slope.expand(side, side), slope[:, None].expand(side, side)
    return torch.stack([x, y, 0.5 + 0.5 * torch.sin(6 * x + 4 * y)])[None]


def embedded(pipe: Any, prompt: str) -> Tensor:
    return pipe.encode_prompt(prompt, "cpu", 1, False)[0]


@torch.no_grad()
def latents_of(pipe: Any, pictures: Tensor) -> Tensor:
    return pipe.vae.encode(pictures * 2 - 1).latents


@torch.no_grad()
def velocities(pipe: Any, prompts: tuple[str, ...], timestep: int = 600) -> Tensor:
    """What the UNet predicts from pure noise, the same four for each of the prompts: (prompts, 4, 4, 16, 16)."""
    noise = torch.cat([torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(i)) for i in range(4)])
    words = torch.cat([embedded(pipe, prompt) for prompt in prompts]).repeat_interleave(4, 0)
    return pipe.unet(noise.repeat(len(prompts), 1, 1, 1), timestep, words).sample.unflatten(0, (-1, 4))


def test_the_folder_is_complete_and_small_and_has_no_pickle():
    files = [file for file in todome_flowers.path().rglob("*") if file.is_file()]
    assert {file.relative_to(todome_flowers.path()).as_posix() for file in files} == FILES
    assert sum(file.stat().st_size for file in files) <= LARGEST


@pytest.mark.parametrize(
    "opened", [todome_flowers.load, lambda: StableDiffusionPipeline.from_pretrained(todome_flowers.path())]
)
def test_it_opens_without_a_network(offline, opened):
    with quiet_loading():
        pipe = opened()
    assert type(pipe) is StableDiffusionPipeline
    assert {pipe.unet.dtype, pipe.vae.dtype, pipe.text_encoder.dtype} == {torch.float32}


def test_options_of_from_pretrained_are_passed_on():
    with quiet_loading():
        pipe = todome_flowers.load(dtype=torch.bfloat16)
    assert {pipe.unet.dtype, pipe.vae.dtype, pipe.text_encoder.dtype} == {torch.bfloat16}


def test_it_has_the_shape_of_stable_diffusion_in_small(flowers):
    assert 15e6 < sum(parameter.numel() for parameter in flowers.unet.parameters()) < 17e6
    with todome.apply(flowers.unet, todome.Downsample(2), scheduler=flowers.scheduler) as patch, torch.no_grad():
        patch.at(0, 20)
        flowers.unet(torch.zeros(1, 4, 64, 64), 999, embedded(flowers, ""))
        levels = patch.levels
    assert [level.level for level in levels] == [1, 2, 3]
    assert levels[0].grids == {(64, 64): 1024}
    assert flowers.unet.config.sample_size * flowers.vae_scale_factor == 256
    assert latents_of(flowers, smooth_picture()).shape == (1, 4, 32, 32)
    config = flowers.scheduler.config
    assert (config.beta_start, config.beta_end, config.beta_schedule) == (0.00085, 0.012, "scaled_linear")
    assert (config.prediction_type, config.num_train_timesteps) == ("v_prediction", 1000)


def test_the_autoencoder_is_trained(flowers):
    latents = latents_of(flowers, smooth_picture())
    with torch.no_grad():
        again = flowers.vae.decode(latents).sample / 2 + 0.5
    assert psnr(again.clamp(0, 1), smooth_picture()).item() > 25  # measured: 33
    assert ((latents.std((0, 2, 3)) > 0.3) & (latents.std((0, 2, 3)) < 3)).all()  # measured: 1.1 to 1.5


@torch.no_grad()
def test_the_unet_is_trained(flowers):
    latents, words = latents_of(flowers, smooth_picture()), embedded(flowers, "a flower")
    noise = torch.randn(latents.shape, generator=torch.Generator().manual_seed(0))
    for timestep in (100, 500, 700):
        alpha = flowers.scheduler.alphas_cumprod[timestep]
        signal, sigma = alpha.sqrt(), (1 - alpha).sqrt()
        predicted = flowers.unet(signal * latents + sigma * noise, timestep, words).sample
        wanted = signal * noise - sigma * latents
        assert (predicted - wanted).square().mean() < 0.3 * wanted.square().mean()  # measured: 0.09 to 0.15


def test_every_word_of_the_captions_is_one_token(flowers):
    begin, end = flowers.tokenizer.bos_token_id, flowers.tokenizer.eos_token_id
    tokens = {word: flowers.tokenizer(word).input_ids for word in vocabulary()}
    assert [word for word, ids in tokens.items() if len(ids) != 3 or [ids[0], ids[-1]] != [begin, end]] == []
    assert len({ids[1] for ids in tokens.values()}) == len(tokens)


def test_the_tokenizer_is_the_same_in_both_formats():
    model = read_json("tokenizer/tokenizer.json")["model"]
    version, *merges = (todome_flowers.path() / "tokenizer/merges.txt").read_text(encoding="utf-8").splitlines()
    assert version == "#version: 0.2"
    assert [tuple(line.split(" ")) for line in merges] == [tuple(pair) for pair in model["merges"]]
    assert read_json("tokenizer/vocab.json") == model["vocab"]
    assert len(model["vocab"]) == read_json("text_encoder/config.json")["vocab_size"]


def test_the_text_encoder_has_the_names_that_transformers_4_knows(flowers):
    """It would draw with random weights where it does not find them, and say so in a warning only."""
    with safe_open(todome_flowers.path() / "text_encoder/model.safetensors", "pt") as weights:
        stored = {name: weights.get_tensor(name) for name in weights.keys()}  # noqa: SIM118
    opened = {
        f"text_model.{name.removeprefix('text_model.')}": t for name, t in flowers.text_encoder.state_dict().items()
    }
    assert {name for name in stored if torch.equal(stored[name], opened[name])} == opened.keys()


def test_any_prompt_makes_a_picture(flowers):
    made = flowers(STRANGE_PROMPTS, num_inference_steps=1, height=64, width=64, output_type="pt").images
    assert made.shape == (len(STRANGE_PROMPTS), 3, 64, 64)
    assert made.isfinite().all()


@pytest.mark.thorough
@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_makes_a_picture(flowers, name):
    with use_scheduler(flowers, name):
        made = picture(flowers)
    assert made.shape == (1, 3, 64, 64)
    assert made.isfinite().all()
    assert made.std() > 0.05  # not a grey area


def test_seeds_guidance_and_negative_prompts_change_the_picture(flowers):
    first = picture(flowers)
    assert picture(flowers).equal(first)
    changes: list[dict[str, Any]] = [
        {"seed": 1},
        {"guidance_scale": 1.0},
        {"guidance_scale": 3.0},
        {"negative_prompt": "a yellow tulip"},
    ]
    for options in changes:
        assert (picture(flowers, **options) - first).abs().mean() > 0.01  # of white


@pytest.mark.parametrize(
    ("prompt", "with_unknown", "other_colour"),
    [UNKNOWN_WORDS[0], *(pytest.param(*words, marks=pytest.mark.thorough) for words in UNKNOWN_WORDS[1:])],
)
def test_an_unknown_word_changes_far_less_than_another_colour(flowers, prompt, with_unknown, other_colour):
    known, unknown, other = velocities(flowers, (prompt, with_unknown, other_colour))
    assert (unknown - known).norm() < (other - known).norm() / 3  # measured: a ninth or less


def test_plans_are_of_the_shipped_unet(flowers):
    assert todome_flowers.plans()
    for path in todome_flowers.plans():
        plan = todome.Plan.load(path)
        assert plan.measured["fingerprint"] == fingerprint(flowers.unet), f"{path.name} was measured with other weights"
        assert plan.measured["weights"] == todome_flowers.fingerprint()
        assert (plan.measured["size"][0], plan.measured["goal"]) == asked_by_name(path)
        with todome.apply(flowers, plan):
            pass


def asked_by_name(path: Path) -> tuple[int, str]:
    side, keep = path.stem.split("-")
    return int(side), f"at least {keep} dB"


def test_the_fingerprint_is_that_of_the_files(tmp_path: Path):
    for part, content in (("unet", b"a"), ("vae", b"b")):
        (tmp_path / part).mkdir()
        (tmp_path / part / "diffusion_pytorch_model.safetensors").write_bytes(content)
    one = todome_flowers.fingerprint(tmp_path)
    (tmp_path / "vae/diffusion_pytorch_model.safetensors").write_bytes(b"c")
    assert len({one, todome_flowers.fingerprint(tmp_path), todome_flowers.fingerprint()}) == 3
