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
from todome.tools.quiet import quiet_loading
from todome.tools.schedulers import SCHEDULERS, use_scheduler
from todome.tools.tuning.layers import fingerprint

LARGEST = 45e6  # bytes of everything
STRANGE_PROMPTS = ["", "zorbly", "красный тюльпан", "naïve 🌷🌷", "\0\n\t", "</w>", "rose " * 500]
# A prompt, the same with a word that no dictionary has, and the same in another colour.
UNKNOWN_WORDS = [
    ("a red tulip", "a red tulip zorbly", "a yellow tulip"),
    ("a red rose", "a red snorpel rose", "a white rose"),
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


def embedded(pipe: Any, prompt: str) -> Tensor:
    return pipe.encode_prompt(prompt, "cpu", 1, False)[0]


@torch.no_grad()
def velocities(pipe: Any, prompts: tuple[str, ...], timestep: int = 600) -> Tensor:
    """What the UNet predicts from pure noise, the same four for each of the prompts: (prompts, 4, 4, 16, 16)."""
    noise = torch.cat([torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(i)) for i in range(4)])
    words = torch.cat([embedded(pipe, prompt) for prompt in prompts]).repeat_interleave(4, 0)
    return pipe.unet(noise.repeat(len(prompts), 1, 1, 1), timestep, words).sample.unflatten(0, (-1, 4))


def test_the_folder_is_small_and_has_no_pickle():
    files = [file for file in todome_flowers.path().rglob("*") if file.is_file()]
    assert {file.suffix for file in files} == {".json", ".txt", ".safetensors"}
    assert sum(file.stat().st_size for file in files) <= LARGEST


@pytest.mark.parametrize(
    ("opened", "dtype"),
    [
        (lambda: StableDiffusionPipeline.from_pretrained(todome_flowers.path()), torch.float32),
        (lambda: todome_flowers.load(dtype=torch.bfloat16), torch.bfloat16),
    ],
)
def test_it_opens_without_a_network(offline, opened, dtype):
    with quiet_loading():
        pipe = opened()
    assert type(pipe) is StableDiffusionPipeline
    assert {pipe.unet.dtype, pipe.vae.dtype, pipe.text_encoder.dtype} == {dtype}


def test_it_has_the_shape_of_stable_diffusion_in_small(flowers):
    assert 15e6 < sum(parameter.numel() for parameter in flowers.unet.parameters()) < 17e6
    with todome.apply(flowers.unet, todome.Downsample(2), scheduler=flowers.scheduler) as patch, torch.no_grad():
        patch.at(0, 20)
        flowers.unet(torch.zeros(1, 4, 64, 64), 999, embedded(flowers, ""))
        levels = patch.levels
    assert [level.level for level in levels] == [1, 2, 3]
    assert levels[0].grids == {(64, 64): 1024}
    assert flowers.unet.config.sample_size * flowers.vae_scale_factor == 256
    assert flowers.scheduler.config.prediction_type == "v_prediction"


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
    changes: list[dict[str, Any]] = [{"seed": 1}, {"guidance_scale": 1.0}, {"negative_prompt": "a yellow tulip"}]
    for options in changes:
        assert (picture(flowers, **options) - first).abs().mean() > 0.01  # of white


def test_an_unknown_word_changes_far_less_than_another_colour(flowers):
    for prompts in UNKNOWN_WORDS:
        known, unknown, other = velocities(flowers, prompts)
        assert (unknown - known).norm() < (other - known).norm() / 3  # measured: a ninth or less


def test_plans_are_of_the_shipped_unet(flowers):
    assert todome_flowers.plans()
    for path in todome_flowers.plans():
        plan = todome.Plan.load(path)
        found = plan.conditions
        assert found["fingerprint"] == fingerprint(flowers.unet), f"{path.name} was measured with other weights"
        assert found["weights"] == todome_flowers.fingerprint()
        side, keep = path.stem.split("-")
        assert (found["size"][0], plan.evidence["goal"]) == (int(side), f"at least {keep} dB")
        with todome.apply(flowers, plan):
            pass


def test_the_fingerprint_is_that_of_the_files(tmp_path: Path):
    for part, content in (("unet", b"a"), ("vae", b"b")):
        (tmp_path / part).mkdir()
        (tmp_path / part / "diffusion_pytorch_model.safetensors").write_bytes(content)
    one = todome_flowers.fingerprint(tmp_path)
    (tmp_path / "vae/diffusion_pytorch_model.safetensors").write_bytes(b"c")
    assert len({one, todome_flowers.fingerprint(tmp_path), todome_flowers.fingerprint()}) == 3
