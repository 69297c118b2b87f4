"""Checkpoints, LoRAs and VAEs in single files: what is opened computes what the original classes compute."""

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
import originals
import pytest
import torch
from diffusers.models.embeddings import get_timestep_embedding
from diffusers.utils import logging as notes
from safetensors.torch import save_file
from torch import Tensor
from transformers.utils import logging as bars

import todome
from todome.tools.checkpoints.opening import predicts_noise, use_loras, use_vae
from todome.tools.checkpoints.tokenizer import merges
from todome.tools.generate import Settings, make_picture, settings_of
from todome.tools.measuring.subjects import own_size
from todome.tools.metadata import settings_texts
from todome.tools.pipelines import open_pipeline
from todome.tools.snippets import opening_lines

pytestmark = pytest.mark.xdist_group("opened")  # what they share is made once


@functools.cache
def open_once(path: Path) -> Any:
    """The pipeline, for tests that leave it as it is."""
    return open_pipeline(path, "cpu")


@functools.cache
def original_of(name: str) -> Any:
    return getattr(originals, name)()


@pytest.fixture(
    scope="module", params=["sd1", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("sd2", "sdxl"))]
)
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
    assert own_size(pipe) == ({"sd1": 512, "sd2": 768, "sdxl": 1024}[name],) * 2  # random weights predict no noise


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

    if name == "sdxl":
        the_second_computes_the_same(original.conditioner.embedders[1].model, pipe)


def the_second_computes_the_same(clip: Any, pipe: Any) -> None:
    words = pipe.tokenizer_2("a red tulip", padding="max_length", return_tensors="pt").input_ids
    found = pipe.text_encoder_2(words, output_hidden_states=True)
    torch.testing.assert_close(found.hidden_states[-2], clip.layer(words, 31), rtol=1e-3, atol=1e-3)
    end = words[0].argmax()
    pooled = clip.ln_final(clip.layer(words, 32))[:, end] @ clip.text_projection
    torch.testing.assert_close(found.text_embeds, pooled, rtol=1e-3, atol=1e-3)


@pytest.mark.thorough
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


@pytest.mark.parametrize(
    ("name", "texts", "tensors", "found"),
    [
        ("sd2", {"modelspec.prediction_type": "epsilon"}, {}, ("epsilon", False)),
        ("sd2", {"modelspec.prediction_type": "v"}, {}, ("v_prediction", False)),
        ("sdxl", None, {"v_pred": torch.tensor([]), "ztsnr": torch.tensor([])}, ("v_prediction", True)),
    ],
)
def test_what_the_file_says_it_predicts_is_believed(tmp_path, name, texts, tensors, found):
    path = getattr(originals, name)().write(tmp_path / "said.safetensors", texts, **tensors)
    config = open_pipeline(path, "cpu").scheduler.config
    assert (config.prediction_type, config.get("rescale_betas_zero_snr", False)) == found


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


def test_opening_leaves_no_files_and_the_notes_and_bars_of_others_alone(files, tmp_path, monkeypatch):
    state = lambda: (notes.get_verbosity(), notes.is_progress_bar_enabled(), bars.is_progress_bar_enabled())  # noqa: E731
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = state()
    open_pipeline(files / "sd1.safetensors", "cpu")
    assert state() == before
    assert not list(tmp_path.iterdir())


LAYER = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"
KOHYA = f"lora_unet_{LAYER.replace('.', '_')}"


@pytest.fixture
def sd1(files: Path) -> Any:
    return open_pipeline(files / "sd1.safetensors", "cpu")


def weight(pipe: Any) -> Tensor:
    return pipe.unet.get_submodule(LAYER).weight.detach().clone()


def test_a_lora_of_kohya_and_its_weight(sd1, tmp_path):
    """W + weight * alpha / rank * up @ down."""
    down, up, path = noise(2, 32), noise(32, 2), tmp_path / "ink.safetensors"
    save_file(
        {f"{KOHYA}.lora_down.weight": down, f"{KOHYA}.lora_up.weight": up, f"{KOHYA}.alpha": torch.tensor(1.0)}, path
    )
    before = weight(sd1)
    use_loras(sd1, [f"{path}:0.5", str(path)])
    torch.testing.assert_close(weight(sd1), before + 1.5 * 0.5 * up @ down, rtol=1e-4, atol=1e-4)
    assert not any("lora" in name for name, _ in sd1.unet.named_modules())
    assert "level 1, 5 layers" in str(todome.apply(sd1, todome.Downsample(2)))
    todome.remove(sd1)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "tensors",
    [
        {f"unet.{LAYER}.lora_A.weight": noise(2, 99), f"unet.{LAYER}.lora_B.weight": noise(32, 2)},
        {"transformer.blocks.0.lora_A.weight": noise(2, 32), "transformer.blocks.0.lora_B.weight": noise(32, 2)},
    ],
    ids=["other widths", "other names"],
)
def test_a_lora_of_another_model(sd1, tmp_path, tensors):
    path = tmp_path / "ink.safetensors"
    save_file(tensors, path)
    with pytest.raises(ValueError, match=r"^lora=.* Allowed: what was made for this kind of model\. It does not fit: "):
        use_loras(sd1, [str(path)])


@pytest.mark.parametrize("prefix", ["", "first_stage_model."])
def test_another_vae(sd1, tmp_path, prefix):
    other = copy.deepcopy(originals.sd1().first_stage_model)
    with torch.no_grad():
        other.decoder.conv_out.bias += 1
    path = tmp_path / "vae.safetensors"
    save_file({f"{prefix}{name}": tensor.contiguous() for name, tensor in other.state_dict().items()}, path)
    latents = noise(1, 4, 8, 8)
    with torch.no_grad():
        before = sd1.vae.decode(latents).sample
        use_vae(sd1, str(path))
        torch.testing.assert_close(sd1.vae.decode(latents).sample, before + 1, rtol=1e-3, atol=1e-3)
    assert sd1.vae.config.scaling_factor == 0.18215


def test_a_vae_of_diffusers_as_file_and_folder(sd1, tmp_path):
    with torch.no_grad():
        sd1.vae.decoder.conv_out.bias += 1
    sd1.vae.save_pretrained(tmp_path / "vae")
    expected = sd1.vae.decoder.conv_out.bias.detach().clone()
    for vae in (tmp_path / "vae", tmp_path / "vae/diffusion_pytorch_model.safetensors"):
        with torch.no_grad():
            sd1.vae.decoder.conv_out.bias.zero_()
        use_vae(sd1, str(vae))
        assert (sd1.vae.decoder.conv_out.bias == expected).all()


def test_a_vae_of_another_model(sd1, tmp_path):
    tensors = {name: tensor.contiguous() for name, tensor in originals.Autoencoder().state_dict().items()}
    path = tmp_path / "vae.safetensors"
    save_file({name: tensor for name, tensor in tensors.items() if "decoder.mid" not in name}, path)
    with pytest.raises(
        ValueError, match=r"^vae=.* It does not fit: some weights of the encoder or the decoder are not in it\.$"
    ):
        use_vae(sd1, str(path))
    save_file({**tensors, "decoder.conv_in.weight": noise(64, 16, 3, 3)}, path)
    with pytest.raises(ValueError, match=r"^vae=.* Allowed: what was made for this kind of model\. It does not fit: "):
        use_vae(sd1, str(path))


def test_the_command_draws_with_both_and_makes_it_again(files, run, tmp_path):
    down, up = noise(2, 32), noise(32, 2)
    save_file({f"unet.{LAYER}.lora_A.weight": down, f"unet.{LAYER}.lora_B.weight": up}, tmp_path / "ink.safetensors")
    vae = {name: tensor.contiguous() for name, tensor in originals.sd1().first_stage_model.state_dict().items()}
    save_file(vae, tmp_path / "vae.safetensors")
    model = ("--model", files / "sd1.safetensors")
    parts = ("--lora", "ink.safetensors:0.8", "--vae", "vae.safetensors")
    asked = ("--steps", 1, "--size", 64, "--factor", 2, "--device", "cpu")
    assert run("generate", "a rose", "-o", "plain.png", *model, *asked).exit_code == 0
    result = run("generate", "a rose", "-o", "inked.png", *model, *parts, *asked)
    assert result.exit_code == 0, result.output
    assert Path("plain.png").read_bytes() != Path("inked.png").read_bytes()
    settings = settings_of(Path("inked.png"))
    assert (settings.loras, settings.vae) == (("ink.safetensors:0.8",), "vae.safetensors")
    refused = run("generate", "--like", "inked.png", "-o", "again.png", *model)
    assert refused.exit_code == 2
    assert "--lora ink.safetensors:0.8 --vae vae.safetensors" in " ".join(refused.stderr.replace("│", " ").split())
    assert run("generate", "--like", "inked.png", "-o", "again.png", *model, *parts, "--device", "cpu").exit_code == 0
    assert Path("again.png").read_bytes() == Path("inked.png").read_bytes()


def test_pictures_of_before_have_neither(flowers, tmp_path):
    from todome.tools.pictures import read_texts, write_png

    made = make_picture(Settings("a rose", size=(32, 32), steps=1), flowers)
    old = settings_texts(made.settings, made.sampler)["todome"].replace(', "loras": [], "vae": null', "")
    write_png(made.picture, tmp_path / "old.png", {"todome": old})
    assert "loras" not in read_texts(tmp_path / "old.png")["todome"]
    assert settings_of(tmp_path / "old.png") == made.settings


def test_random_weights_take_no_lora(refused, files):
    save_file({"a.lora_up.weight": noise(1)}, "ink.safetensors")
    text = "lora=['ink.safetensors'] cannot be used. Allowed: nothing, sd15 has random weights. "
    assert refused("bench", "sd15", "--lora", "ink.safetensors") == text + "Leave it out, or name a real model."


def test_lines_of_python_that_open_the_same(files, tmp_path):
    """As the page shows them. They are run but for the first, which looks for configs on the hub."""
    lora, vae = tmp_path / "ink.safetensors", tmp_path / "vae.safetensors"
    save_file({f"unet.{LAYER}.lora_A.weight": noise(2, 32), f"unet.{LAYER}.lora_B.weight": noise(32, 2)}, lora)
    save_file({name: t.contiguous() for name, t in originals.sd1().first_stage_model.state_dict().items()}, vae)
    model = str(files / "sd1.safetensors")
    settings = Settings("a rose", model=model, loras=(f"{lora}:0.5",), vae=str(vae))
    opened, vae_line, *lora_lines = opening_lines(settings, "cpu", torch.float32)
    call = f'diffusers.StableDiffusionPipeline.from_single_file("{model}", dtype=torch.float32)'
    assert opened == f'pipe = {call}.to("cpu")'
    assert vae_line.startswith(f'pipe.vae = diffusers.AutoencoderKL.from_single_file("{vae}", dtype=torch.float32')
    pipe = open_pipeline(model, "cpu")
    exec("\n".join(lora_lines), {"pipe": pipe})
    assert (weight(pipe) == weight(open_pipeline(model, "cpu", loras=settings.loras))).all()
