"""Every example, copied alone into a folder and run as a user would: it writes its picture, with fewer keys."""

import ast
import asyncio
import runpy
import shutil
import socket
import subprocess
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
import torch
from diffusers import ControlNetModel, DDIMScheduler, MotionAdapter, StableDiffusionXLPipeline, UNet2DConditionModel
from fresh import DRAWING, python_after
from omegaconf import OmegaConf
from PIL import Image
from safetensors.torch import save_file
from starlette.requests import Request
from tiny_ldm import TinyLatentDiffusion
from torch import Generator
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection
from zoo import WIDTH, ddim, lively, small_unet, talking, tiny_pipeline
from zoo.models import sdxl
from zoo.pipelines import tiny_vae

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ("--size", "32x24", "--steps", "2", "--factor", "2")
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py"))
LEVEL_1 = "  level 1, 3 layers: factor 2, 12x16 = 192 -> 48 keys"  # 32x24 pixels are 12 rows of 16 latents


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a copy of an example in a folder where it is alone, with what it prints as the answer."""
    monkeypatch.chdir(tmp_path)

    def told(name: str, *words: Any) -> str:
        copied = shutil.copy(EXAMPLES / f"{name}.py", tmp_path)
        monkeypatch.setattr("sys.argv", [f"{name}.py", *map(str, words)])
        with torch.random.fork_rng(), torch.set_grad_enabled(True):  # both are an example's own affair
            runpy.run_path(str(copied), run_name="__main__")
        return capsys.readouterr().out

    return told


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_needs_nothing_but_what_everybody_can_import(name: str):
    """One import of todome, and nothing of its insides."""
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text())
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    imported += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert [module for module in imported if module.split(".")[0] == "todome"] == ["todome"]
    assert not {module.split(".")[0] for module in imported} & set(SCRIPTS)


def pixels(name: str) -> Any:
    with Image.open(name) as picture:
        return np.asarray(picture).astype(int)


@pytest.mark.parametrize("name", ["sd15", "deepcache", "custom_loop"])
def test_one_picture(run: Callable[..., str], folder: Path, name: str):
    said = run(name, "a rose", "--model", folder, "--out", "rose.png", *SMALL)
    assert LEVEL_1 in said
    assert said.endswith("Picture: rose.png\n")
    assert pixels("rose.png").shape == (24, 32, 3)


def test_sdxl(run: Callable[..., str], tmp_path: Path):
    tiny_sdxl().save_pretrained("xl")
    said = run("sdxl", "--model", tmp_path / "xl", *SMALL, "--size", "32x32", "--factor", 2, 2)
    assert "  level 1, 3 layers: factor 2, 8x8 = 64 -> 16 keys\n" in said
    assert "  level 2, 8 layers: factor 2, 4x4 = 16 -> 4 keys\n" in said
    assert pixels("sdxl.png").shape == (32, 32, 3)


def tiny_sdxl() -> StableDiffusionXLPipeline:
    """Each of its two text encoders gives half of a word."""
    words = talking(tiny_pipeline()).tokenizer
    sizes: Any = {"hidden_size": WIDTH // 2, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CLIPTextConfig(vocab_size=len(words), eos_token_id=words.eos_token_id, projection_dim=WIDTH, **sizes)
    first, second = (lively(lambda kind=kind: kind(config)) for kind in (CLIPTextModel, CLIPTextModelWithProjection))
    texts = {"text_encoder": first, "text_encoder_2": second, "tokenizer": words, "tokenizer_2": words}
    images: Any = {"vae": tiny_vae(), "unet": sdxl(), "scheduler": ddim()}
    return StableDiffusionXLPipeline(**texts, **images)


def test_hires_reduces_the_large_pass_alone(run: Callable[..., str], folder: Path):
    said = run("hires", "--model", folder, *SMALL, "--size", "64x48")
    assert said.splitlines()[1] == "  level 1, 3 layers: factor 2, 24x32 = 768 -> 192 keys"
    assert pixels("hires.png").shape == (48, 64, 3)


def test_animatediff(run: Callable[..., str], folder: Path, tmp_path: Path):
    widths: Any = {"block_out_channels": (8, 16), "motion_layers_per_block": 1, "motion_norm_num_groups": 4}
    lively(lambda: MotionAdapter(**widths, motion_num_attention_heads=2)).save_pretrained("motion")
    said = run("animatediff", "--model", folder, "--adapter", tmp_path / "motion", "--frames", 3, *SMALL)
    assert LEVEL_1 in said
    with Image.open("animation.gif") as animation:
        assert (animation.format, animation.size) == ("GIF", (32, 24))
        assert animation.n_frames == 3  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture
def ldm_files(tmp_path: Path) -> tuple[Any, ...]:
    """A checkpoint and its .yaml, in the form that CompVis and Stability gave them."""
    save_file(TinyLatentDiffusion().state_dict(), tmp_path / "ldm.safetensors")
    OmegaConf.save({"model": {"target": "tiny_ldm.TinyLatentDiffusion", "params": {}}}, tmp_path / "ldm.yaml")
    return "--model", tmp_path / "ldm.safetensors", "--config", tmp_path / "ldm.yaml"


def test_ldm_with_its_own_sampler(run: Callable[..., str], ldm_files: tuple[Any, ...]):
    said = run("ldm_original", *ldm_files, *SMALL, "--size", "128x96")
    assert LEVEL_1 in said
    assert pixels("ldm.png").shape == (96, 128, 3)
    run("ldm_original", *ldm_files, *SMALL, "--size", "128x96", "--factor", 1, "--out", "dense.png")
    assert (pixels("ldm.png") != pixels("dense.png")).any()


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction"])
def test_the_custom_loop_is_ddim(run: Callable[..., str], tmp_path: Path, kind: Any):
    """Without a reduction it draws what diffusers draws."""
    scheduler = DDIMScheduler(prediction_type=kind, timestep_spacing="trailing", steps_offset=1, clip_sample=False)
    pipe = talking(tiny_pipeline(scheduler, small_unet()))
    pipe.save_pretrained("model")
    run("custom_loop", "a rose", "--model", tmp_path / "model", *SMALL, "--factor", 1)
    options = {"width": 32, "height": 24, "num_inference_steps": 2, "guidance_scale": 7.5}
    expected = pipe("a rose", **options, generator=Generator().manual_seed(0)).images[0]
    np.testing.assert_allclose(pixels("custom-loop.png"), np.asarray(expected).astype(int), atol=1)


def test_the_window_of_the_custom_loop(run: Callable[..., str], folder: Path):
    pictures = []
    for stop in (0.0, 0.5, 1.0):
        run("custom_loop", "--model", folder, *SMALL, "--stop", stop, "--out", f"{stop}.png")
        pictures.append(pixels(f"{stop}.png").tobytes())
    assert len(set(pictures)) == 3


@pytest.fixture
def photo() -> Path:
    """A picture with colours everywhere."""
    rows, columns = np.mgrid[0:48, 0:64]
    Image.fromarray(np.stack([rows * 5, columns * 3, rows + columns], -1).astype("uint8")).save("photo.png")
    return Path("photo.png")


def test_img2img(run: Callable[..., str], folder: Path, photo: Path):
    said = run("img2img", photo, "a rose", "--model", folder, *SMALL, "--strength", 0.5)
    assert LEVEL_1 in said
    assert pixels("img2img.png").shape == (24, 32, 3)
    run("img2img", photo, "a rose", "--model", folder, *SMALL, "--strength", 1.0, "--out", "more.png")
    assert (pixels("img2img.png") != pixels("more.png")).any()


@pytest.mark.parametrize("channels", [4, 9])
def test_inpainting(run: Callable[..., str], tmp_path: Path, photo: Path, channels: int):
    """With a model made for it, and with any other. What the mask keeps is kept to the pixel."""
    talking(tiny_pipeline(unet=small_unet(in_channels=channels))).save_pretrained("model")
    mask = np.zeros((24, 32), "uint8")
    mask[:, 16:] = 255
    Image.fromarray(mask).save("mask.png")
    said = run("inpaint", photo, "mask.png", "a rose", "--model", tmp_path / "model", *SMALL)
    assert LEVEL_1 in said
    with Image.open(photo) as picture:
        kept = np.asarray(picture.convert("RGB").resize((32, 24))).astype(int)
    assert (pixels("inpaint.png")[:, :16] == kept[:, :16]).all()
    assert (pixels("inpaint.png")[:, 16:] != kept[:, 16:]).any()


def test_controlnet(run: Callable[..., str], folder: Path, tmp_path: Path, photo: Path):
    unet = UNet2DConditionModel.from_pretrained(folder, subfolder="unet")
    conditioning: Any = {"conditioning_embedding_out_channels": (4, 4)}
    lively(lambda: ControlNetModel.from_unet(unet, load_weights_from_unet=False, **conditioning)).save_pretrained("net")
    said = run("controlnet", photo, "a rose", "--model", folder, "--controlnet", tmp_path / "net", *SMALL)
    assert "UNet2DConditionModel" in said
    assert "ControlNetModel" in said
    assert pixels("controlnet.png").shape == (24, 32, 3)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    """Address of the server with two threads, in a process of its own."""
    sized = [*SMALL, "--steps", "4", "--threads", "2", "--port", "0"]
    words = [python_after(DRAWING), str(EXAMPLES / "server.py"), "--model", str(folder), *sized]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        yield next(line.split()[-1] for line in lines if line.startswith("Listening on "))
        process.terminate()


def asked(address: str, query: str, seconds: float = 60) -> bytes:
    with urlopen(f"{address}/{query}", timeout=seconds) as answer:
        return answer.read()


def test_the_server_draws_for_many_at_once(server: str):
    """The same prompt and seed are the same picture, whoever asks beside."""
    alone = asked(server, "?prompt=a+rose&seed=3")
    with ThreadPoolExecutor(4) as pool:
        queries = ["?prompt=a+rose&seed=3", "?prompt=a+rose&seed=4"] * 4
        found = list(pool.map(lambda query: asked(server, query), queries))
    assert found[::2] == [alone] * 4
    assert len({*found}) == 2
    assert alone.startswith(b"\x89PNG")


SEEDS = ["18446744073709551616", "9223372036854775808", "-1", "1.5", "x", "9" * 5000]


@pytest.mark.parametrize("query", [f"prompt=a&seed={seed}" for seed in SEEDS] + ["seed=3", f"prompt={'a' * 501}"])
def test_the_server_refuses_in_a_sentence(server: str, query: str):
    with pytest.raises(HTTPError, match="400") as refused:
        asked(server, f"?{query}")
    said = refused.value.read().decode()
    assert ("Allowed: a whole number from 0 to 2**63 - 1." if query.startswith("prompt=a&") else "Ask for /") in said


def test_the_server_has_no_more_threads_than_it_was_given(server: str):
    """Two that say nothing have both of them: whoever comes then waits for one of them to leave."""
    host, port = server.removeprefix("http://").split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(2)]
    with pytest.raises(TimeoutError):
        asked(server, "?prompt=a+rose", seconds=1)
    for one in silent:
        one.close()
    assert asked(server, "?prompt=a+rose").startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def serving() -> Any:
    """What the example for Ray Serve defines, without a cluster."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Ray, about itself
        return runpy.run_path(str(EXAMPLES / "serve.py"))


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[" * 9_999,
        b"\xff",
        b'{"seed": 18446744073709551616}',
        b'{"size": 36}',
        b'{"steps": true}',
        b'{"guidance": NaN}',
        b'{"steps": 1e999}',
    ],
)
def test_ray_serve_refuses_in_a_sentence(serving: Any, body: bytes):
    with pytest.raises(ValueError, match=r"^(This is no object in JSON|\w+=.* cannot be used)"):
        serving["read_request"](body, 64, 8)


@pytest.mark.parametrize("parts", [[b" " * 20_000], [b" " * 100] * 200], ids=["at once", "in parts"])
def test_ray_serve_reads_no_more_than_a_request_needs(serving: Any, parts: list[bytes]):
    left = iter(parts)

    async def receive() -> Any:
        return {"type": "http.request", "body": next(left), "more_body": True}

    with pytest.raises(OverflowError, match="Allowed: 10000 bytes"):
        asyncio.run(serving["read_body"](Request({"type": "http", "method": "POST"}, receive)))
