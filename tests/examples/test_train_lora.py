"""The example that trains a LoRA: its file changes what is drawn, and a resumed training ends with the same weights."""

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from diffusers import DDPMScheduler, StableDiffusionPipeline, StableDiffusionXLPipeline
from PIL import Image, ImageDraw
from safetensors.torch import load_file
from test_scripts import tiny_sdxl
from torch.optim.optimizer import register_optimizer_step_post_hook
from zoo import noise, text

EXAMPLE = Path(__file__).parents[2] / "examples/train_lora.py"
LORA = "pytorch_lora_weights.safetensors"
SMALL = ("--size", 32, "--rank", 2, "--learning-rate", 0.1)


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three pictures of three shapes in the folder where the test is."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for colour, size in {"red": (48, 48), "white": (80, 48), "pink": (40, 64)}.items():
        picture = Image.new("RGB", size, "darkgreen")
        ImageDraw.Draw(picture).ellipse((5, 5, 30, 30), colour)
        picture.save(f"photos/{colour}.png")
        Path(f"photos/{colour}.txt").write_text(f"a {colour} tulip\n")


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Callable[..., None]]:
    """Runs the example on those photos; its signals and accelerate's settings are the process's."""
    before = signal.getsignal(signal.SIGINT)

    def run(*words: Any) -> None:
        AcceleratorState._reset_state(reset_partial_state=True)
        options = ("--out", "out", "--model", folder, *SMALL, *words)
        monkeypatch.setattr("sys.argv", ["train_lora.py", "photos", *map(str, options)])
        with torch.random.fork_rng(), torch.set_grad_enabled(True):
            runpy.run_path(str(EXAMPLE), run_name="__main__")

    yield run
    signal.signal(signal.SIGINT, before)
    AcceleratorState._reset_state(reset_partial_state=True)


def drawn(pipe: Any) -> torch.Tensor:
    options = {"width": 32, "height": 32, "num_inference_steps": 2, "output_type": "pt"}
    return pipe("a red tulip", **options, generator=torch.Generator().manual_seed(0)).images


def test_its_file_changes_what_is_drawn(train: Callable[..., None], folder: Path, capsys: Any):
    train("--steps", 2, "--batch", 2, "--checkpointing")
    said = "rank 2, 2 steps, Downsample(factor=2, phase='random', start=0.0, stop=1.0, seed=0)\n"
    assert capsys.readouterr().out == f"out/{LORA}: {said}"
    pipe: Any = StableDiffusionPipeline.from_pretrained(folder)
    before = drawn(pipe)
    pipe.load_lora_weights("out")
    assert (drawn(pipe) - before).abs().max() > 0.01


@pytest.mark.thorough
def test_sdxl(train: Callable[..., None]):
    tiny_sdxl().save_pretrained("xl")
    train("--model", "xl", "--steps", 1)
    pipe: Any = StableDiffusionXLPipeline.from_pretrained("xl")
    before = drawn(pipe)
    pipe.load_lora_weights("out")
    assert (drawn(pipe) - before).abs().max() > 0.01


def test_a_resumed_training_ends_with_the_same_weights_to_the_bit(train: Callable[..., None], capsys: Any):
    options = ("--steps", 4, "--accumulate", 2, "--stop", 0.7, "--save-every", 2)
    train(*options, "--out", "whole")
    hook = register_optimizer_step_post_hook(lambda *_: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(SystemExit, match="130"):
        train(*options)
    hook.remove()
    assert "Interrupted after step 1" in capsys.readouterr().out
    assert [path.name for path in Path("out").iterdir()] == ["step-0000001"]
    shutil.copytree("out/step-0000001", "out/unfinished")  # as a process leaves it that is killed amid the next save
    Path("out/unfinished", LORA).write_bytes(b"half")
    train(*options, "--resume")
    assert sorted(path.name for path in Path("out").iterdir()) == [LORA, "step-0000004"]
    assert Path("out", LORA).read_bytes() == Path("whole", LORA).read_bytes()
    train(*options, "--resume")
    assert Path("out", LORA).read_bytes() == Path("whole", LORA).read_bytes()


@pytest.mark.thorough
def test_two_processes_learn_what_one_does(train: Callable[..., None], folder: Path):
    words = ["photos", "--out", "two", "--model", folder, *SMALL, "--steps", 2, "--learning-rate", 1e-3]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", EXAMPLE, *words]
    calm = os.environ | {"ACCELERATE_USE_CPU": "true", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"}
    subprocess.run(list(map(str, launch)), check=True, env=calm, timeout=300)
    train(*words[5:], "--batch", 2)
    one, two = (load_file(Path(name, LORA)) for name in ("out", "two"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-3, atol=1e-5)
    assert any(weight.any() for name, weight in two.items() if "lora_B" in name)
    train(*words[5:], "--batch", 2, "--out", "two", "--resume")  # one may go on with what two began


def spoil(what: str) -> None:
    """Makes of the folder what the example refuses."""
    changes: dict[str, Callable[[], Any]] = {
        "no folder": lambda: Path("photos").rename("others"),
        "no pictures": lambda: [path.unlink() for path in Path("photos").glob("*.png")],
        "no caption": lambda: Path("photos/red.txt").unlink(),
        "no picture": lambda: Path("photos/red.png").write_text("half"),
        "something in it": lambda: (Path("out").mkdir(), Path("out/mine.txt").touch()),
    }
    changes[what]()


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("no folder", "photos"),
        ("no pictures", "photos"),
        ("no caption", "photos/red.txt"),
        ("no picture", "photos/red.png"),
        ("something in it", "--resume"),
    ],
)
def test_what_it_refuses_is_said_in_a_sentence(train: Callable[..., None], what: str, named: str):
    spoil(what)
    before = files()
    with pytest.raises(SystemExit, match=named):
        train("--steps", 1)
    assert files() == before


def files() -> list[Path]:
    return sorted(path for path in Path().rglob("*") if path.is_file())


def test_captions_that_are_missing_may_be_given(train: Callable[..., None]):
    spoil("no caption")
    train("--steps", 1, "--caption", "a flower")
    settings = json.loads(Path("out/step-0000001/settings.json").read_text())
    assert settings["captions"] == {"pink.png": "a pink tulip", "red.png": "a flower", "white.png": "a white tulip"}
    with pytest.raises(SystemExit, match="rank, captions"):
        train("--steps", 1, "--caption", "a tulip", "--rank", 3, "--resume")


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_the_loss_is_that_of_what_the_model_predicts(prediction: Any):
    """A model that knows the picture makes no error."""
    schedule, latents, time = DDPMScheduler(prediction_type=prediction), noise(3, 4, 8, 8), torch.tensor([1, 500, 999])
    signal = schedule.alphas_cumprod[time].view(-1, 1, 1, 1)

    def oracle(noisy: torch.Tensor, *_: Any, **__: Any) -> Any:
        e = (noisy - signal.sqrt() * latents) / (1 - signal).sqrt()
        velocity = signal.sqrt() * e - (1 - signal).sqrt() * latents
        return SimpleNamespace(sample=e if prediction == "epsilon" else velocity)

    loss_of = runpy.run_path(str(EXAMPLE))["loss_of"]
    given = {"noise": noise(3, 4, 8, 8, seed=1), "time": time, "text": text(3)}
    assert loss_of(oracle, schedule, latents, **given).item() < 1e-4
    assert loss_of(oracle, schedule, latents + 1, **given).item() > 1e-3
