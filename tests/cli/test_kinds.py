"""Files that are no checkpoint are refused by name of what was found in them, before anything is opened."""

import pickle
import shutil
import struct
from pathlib import Path
from typing import Any

import originals
import pytest
import torch
from safetensors.torch import load_file, save_file
from zoo import controlnet, small_unet, tiny_vae

from todome.tools.checkpoints.opening import check_checkpoint, check_parts, split_weight
from todome.tools.pipelines import find_model, open_pipeline

OPENED = "a checkpoint of Stable Diffusion 1.x, 2.x or XL that draws from text"
PICKLE = "This is a pickle (.ckpt, .pt or .pth), which can run any code when it is opened."


def one(*names: str, shape: tuple[int, ...] = (1,)) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(shape) for name in names}


def inpainting() -> dict[str, Any]:
    return originals.sd1(in_channels=9).state_dict()


FOUND = {
    "a LoRA. Give it to --lora, beside a --model": one("lora_unet_mid_block.lora_up.weight", "a.lora_down.weight"),
    "a VAE. Give it to --vae, beside a --model": tiny_vae().state_dict(),
    "a VAE. Give it to --vae, beside a --model ": originals.Autoencoder().state_dict(),
    "a ControlNet. Use it with diffusers: examples/controlnet.py": controlnet().state_dict(),
    "a ControlNet. Use it with diffusers: examples/controlnet.py ": one("control_model.time_embed.0.weight"),
    "Flux or a relative of it. todome is for": one("model.diffusion_model.double_blocks.0.img_attn.qkv.weight"),
    "Stable Diffusion 3. todome is for": one("model.diffusion_model.joint_blocks.0.x_block.attn.qkv.weight"),
    "a diffusion transformer. todome is for": one("transformer_blocks.0.attn1.to_q.weight"),
    "a UNet in the layout of diffusers, one part of a pipeline. Name the folder": small_unet().state_dict(),
    "a UNet without text encoder and VAE. Name the folder": one("model.diffusion_model.input_blocks.0.0.weight"),
    "a text encoder, one part of a pipeline. Name": one("text_model.embeddings.token_embedding.weight"),
    "a textual inversion, an embedding. Use": one("emb_params", shape=(2, 768)),
    "an IP-Adapter. Use": one("image_proj.proj.weight", "ip_adapter.1.to_k_ip.weight"),
    "a motion module of AnimateDiff. Use": one("down_blocks.0.motion_modules.0.temporal_transformer.norm.weight"),
    "the refiner of SDXL. It only goes on": one(
        "model.diffusion_model.input_blocks.0.0.weight", "conditioner.embedders.0.model.text_projection"
    ),
    "nothing that todome knows: 2 tensors, such as a, b. Name another file": one("a", "b"),
}


@pytest.mark.parametrize("found", FOUND)
def test_by_name_of_what_was_found(tmp_path, found):
    save_file(FOUND[found], tmp_path / "file.safetensors")
    with pytest.raises(ValueError, match=r"^model='.*file\.safetensors' cannot be used\.") as error:
        open_pipeline(tmp_path / "file.safetensors")
    assert f"Allowed: {OPENED}. This file is {found.rstrip()}" in str(error.value)


def test_an_inpainting_checkpoint(tmp_path):
    originals.sd1(in_channels=9).write(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"This file is an inpainting checkpoint\. Use it in Python: examples/inpaint"):
        check_checkpoint(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.ckpt", pickle.dumps({"state_dict": 1}, 2), PICKLE),
        ("a.pt", b"PK\x03\x04archive", PICKLE),
        ("a.safetensors", b"", "This one is empty: download it again."),
        (
            "a.safetensors",
            b"version https://git-lfs.github.com/spec/v1\n",
            "This is a pointer of git-lfs, not the file",
        ),
        ("a.safetensors", b"<!DOCTYPE html><html>", "This is a web page, not the file itself."),
        ("a.gguf", b"GGUF\x03\x00", "This is a GGUF file, which is quantised."),
        ("a.safetensors", b"nonsense that is long enough", "This one does not begin like one: download it again"),
        ("a.safetensors", struct.pack("<Q", 4) + b"null", "This one does not begin like one"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_safetensors_file(refused, name, content, text):
    Path(name).write_bytes(content)
    said = refused("generate", "a", "--model", name, "-o", "a.png")
    assert said.startswith(f"model={name!r} cannot be used. Allowed: a .safetensors file that is whole. {text}")


def test_a_file_that_is_cut_off(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file(one("a", shape=(1000, 1000)), path)
    path.write_bytes(path.read_bytes()[:1_500_000])
    with pytest.raises(ValueError, match=r"This one is cut off: download it again"):
        open_pipeline(path)


def test_a_checkpoint_without_some_weights(tmp_path):
    model = originals.sd1()
    del model.model.diffusion_model.input_blocks[4][1].norm  # pyright: ignore
    text = r"This file is Stable Diffusion 1\.x, but not all of its weights are in it\. Name one with all parts\.$"
    with pytest.raises(ValueError, match=text):
        open_pipeline(model.write(tmp_path / "a.safetensors"), "cpu")
    del model.first_stage_model
    with pytest.raises(
        ValueError, match=r"This file is Stable Diffusion 1\.x, but lacks .* Name one with all parts\.$"
    ):
        open_pipeline(model.write(tmp_path / "b.safetensors"), "cpu")


def test_a_folder_whose_weights_are_pickles(folder, tmp_path):
    """Of diffusers' own model and of a text encoder of transformers: neither is unpickled."""
    for part, name in {"unet": "diffusion_pytorch_model", "text_encoder": "model"}.items():
        path = Path(shutil.copytree(folder, tmp_path / part))
        weights = path / part / f"{name}.safetensors"
        torch.save(load_file(weights), path / part / f"{name.replace('model', 'pytorch_model', part != 'unet')}.bin")
        weights.unlink()
        with pytest.raises(ValueError, match=r"^model=.* Allowed: a pipeline with weights in \.safetensors files\. "):
            open_pipeline(path, "cpu")


def test_a_folder_of_files_names_them_and_a_file_that_is_not_there_is_no_hub_id(tmp_path):
    save_file(one("a"), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"Name one of the files in it: model\.safetensors\.$"):
        find_model(str(tmp_path))
    with pytest.raises(ValueError, match=r"Nothing is there: check the spelling\.$"):
        find_model("models/sd15.safetensors")


def test_weights_of_loras(tmp_path):
    path = tmp_path / "a:0.5"
    assert split_weight(f"{path}") == (path.with_name("a"), 0.5)
    path.touch()
    assert split_weight(f"{path}") == (path, 1.0)
    assert split_weight("C:\\ink.safetensors") == (Path("C:\\ink.safetensors"), 1.0)
    assert split_weight("ink.safetensors:-1") == (Path("ink.safetensors"), -1.0)


def test_parts_that_are_something_else(tmp_path):
    vae, lora = tmp_path / "vae.safetensors", tmp_path / "lora.safetensors"
    save_file(tiny_vae().state_dict(), vae)
    save_file(one("a.lora_up.weight"), lora)
    with pytest.raises(ValueError, match=r"^lora=.* Allowed: a LoRA .* This file is a VAE\. Name another\.$"):
        check_parts([f"{vae}:0.5"], None)
    with pytest.raises(ValueError, match=r"^vae=.* Allowed: a VAE .* This file is a LoRA\. Name another\.$"):
        check_parts([], str(lora))
    with pytest.raises(FileNotFoundError, match=r"^lora='none:0.5' cannot be used\..* Nothing is there: check"):
        check_parts(["none:0.5"], None)
    with pytest.raises(ValueError, match=r"Allowed: a weight from -10 to 10\. 1 is as it was trained"):
        check_parts([f"{lora}:80"], None)
