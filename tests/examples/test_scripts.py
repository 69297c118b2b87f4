"""Every example, run as a user would, on models from disk: it writes its picture and attention sees fewer keys."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diffusers import DDIMScheduler, MotionAdapter, StableDiffusionXLPipeline
from omegaconf import OmegaConf
from PIL import Image
from safetensors.torch import save_file
from tiny_ldm import TinyLatentDiffusion
from torch import Generator
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection
from zoo import WIDTH, ddim, lively, small_unet, talking, tiny_pipeline
from zoo.models import sdxl
from zoo.pipelines import tiny_vae

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ("--size", "32x24", "--steps", "2", "--factor", "2", "--device", "cpu")
LEVEL_1 = "  level 1, 3 layers: factor 2, 12x16 = 192 -> 48 keys"  # 32x24 pixels are 12 rows of 16 latents


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs an example in an empty folder, with what it prints as the answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)

    def told(name: str, *words: Any) -> str:
        monkeypatch.setattr("sys.argv", [f"{name}.py", *map(str, words)])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return told


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
    said = run("sdxl", "--model", tmp_path / "xl", *SMALL, "--size", "32x32", "--factor", "2,2")
    assert "  level 1, 6 layers: factor 2, 8x8 = 64 -> 16 keys\n" in said
    assert "  level 2, 12 layers: factor 2, 4x4 = 16 -> 4 keys\n" in said
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


def test_ldm_with_weights_of_something_else(run: Callable[..., str], ldm_files: tuple[Any, ...], capsys: Any):
    state = TinyLatentDiffusion().state_dict()
    save_file({name: tensor for name, tensor in state.items() if "words" not in name}, ldm_files[1])
    with pytest.raises(SystemExit):
        run("ldm_original", *ldm_files, *SMALL)
    said = f"error: {ldm_files[1]} lacks 1 weights that {ldm_files[3]} asks for\n"
    assert capsys.readouterr().err.endswith(said)


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction"])
def test_the_custom_loop_is_ddim(run: Callable[..., str], tmp_path: Path, kind: Any):
    """Without a reduction it draws what diffusers draws."""
    scheduler = DDIMScheduler(prediction_type=kind, timestep_spacing="trailing", steps_offset=1, clip_sample=False)
    pipe = talking(tiny_pipeline(scheduler, small_unet()))
    pipe.save_pretrained("model")
    run("custom_loop", "a rose", "--model", tmp_path / "model", *SMALL, "--factor", 1)
    asked = {"width": 32, "height": 24, "num_inference_steps": 2, "guidance_scale": 3.0}
    expected = pipe("a rose", **asked, generator=Generator().manual_seed(0)).images[0]
    np.testing.assert_allclose(pixels("custom-loop.png"), np.asarray(expected).astype(int), atol=1)


def test_the_window_of_the_custom_loop(run: Callable[..., str], folder: Path):
    pictures = []
    for stop in (0.0, 0.5, 1.0):
        run("custom_loop", "--model", folder, *SMALL, "--stop", stop, "--out", f"{stop}.png")
        pictures.append(pixels(f"{stop}.png").tobytes())
    assert len(set(pictures)) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "rose.jpg"), "--out rose.jpg must end in .png"),
        (("--out", "gone/rose.png"), "out='gone/rose.png' cannot be used. Allowed: a file in a folder that exists."),
        (("--device", "gpu"), 'device=\'gpu\' cannot be used. Allowed: "auto", "cpu", or a GPU that torch can reach'),
        (("--size", "512"), "argument --size: invalid size value: '512'"),
        (("--factor", "two"), "argument --factor: invalid factor value: 'two'"),
    ],
    ids=str,
)
def test_what_cannot_work_is_said_at_once(run: Callable[..., str], capsys: Any, words: tuple[str, ...], said: str):
    with pytest.raises(SystemExit):
        run("sd15", "--model", "nowhere", *words)
    assert f"error: {said}" in capsys.readouterr().err


def test_no_picture_is_lost(run: Callable[..., str], folder: Path, capsys: Any):
    Path("sd15.png").write_text("mine")
    with pytest.raises(SystemExit):
        run("sd15", "--model", folder, *SMALL)
    assert "out='sd15.png' cannot be used" in capsys.readouterr().err
    assert Path("sd15.png").read_text() == "mine"
    run("sd15", "--model", folder, *SMALL, "--force")
    assert pixels("sd15.png").shape == (24, 32, 3)
