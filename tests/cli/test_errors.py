"""Errors a user can put right: a full sentence and the right exit code; nothing is lost or left behind."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from fresh import DRAWING, python_after
from PIL import Image
from zoo import small_unet, talking, tiny_pipeline

from todome.hooks.attaching import patches_on
from todome.tools.devices import explain_out_of_memory
from todome.tools.generate import Settings, make_picture

OUT = ("-o", "a.png")
SMALL = ("--size", "64x64", "--steps", 1, *OUT)


def is_whole(text: str, given: str) -> bool:
    """Whether a message names what was given, what is allowed and a remedy, in sentences."""
    return re.fullmatch(rf"{re.escape(given)} cannot be used\. Allowed: .+\. [A-Z\"0-9].+\.", text) is not None


@pytest.fixture
def weightless(folder: Path, tmp_path: Path) -> Path:
    """A model that cannot be opened, for its weights are not there."""
    return Path(shutil.copytree(folder, tmp_path / "weightless", ignore=shutil.ignore_patterns("*.safetensors")))


def not_json(path: Path) -> None:
    path.mkdir()
    (path / "model_index.json").write_text("{")


def without_a_prompt(path: Path) -> None:
    blocks: Any = {"down_block_types": ("DownBlock2D",), "up_block_types": ("UpBlock2D",)}
    unet = UNet2DModel(sample_size=8, layers_per_block=1, block_out_channels=(8,), norm_num_groups=4, **blocks)
    DDPMPipeline(unet, DDPMScheduler()).save_pretrained(path)


@pytest.mark.parametrize("given", ["missing", "empty", "not_json", "without_a_prompt", "weightless", "no/such"])
def test_what_is_no_model(refused, weightless, given):
    Path("empty").mkdir()
    not_json(Path("not_json"))
    without_a_prompt(Path("without_a_prompt"))
    assert is_whole(refused("generate", "a", "--model", given, *OUT), f"model={given!r}")


def test_a_model_with_nothing_to_reduce(refused, run, tmp_path):
    blocks: Any = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
    unet = small_unet(**blocks, mid_block_type=None)
    talking(tiny_pipeline(unet=unet)).save_pretrained(tmp_path / "model")
    asked = ("generate", "a", "--model", "model", "--steps", 1, *OUT)
    text = refused(*asked)
    assert "UNet2DConditionModel" in text
    assert "--dense" in text
    assert run(*asked, "--dense").exit_code == 0


@pytest.mark.parametrize(
    ("size", "side", "near"), [("250x130", "Width 250", "248 or 256"), ("256x201", "Height 201", "200 or 208")]
)
def test_a_size_the_model_cannot_make(refused, weightless, size, side, near):
    text = refused("generate", "a", "--model", weightless, "--size", size, *OUT)
    assert text.startswith(f"{side} does not work: ")
    assert text.endswith(f" Try {near}.")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--size=x256", "--size: 'x256'"),
        ("--factor 2 --ratio 0.5", "--factor and --ratio"),
        ("--dense --plan p.json", "--dense and --plan"),
        ("--phase fixed --dense", "--phase: It needs --factor."),
        ("--stop 0.5 --dense", "--stop: It needs --factor or --ratio."),
        ("--factor two", "--factor: 'two'"),
        ("--factor 2 --factor auto", "--factor: '2,auto'"),
        ("--ratio auto", "--ratio: 'auto'"),
    ],
)
def test_options_that_mean_nothing_or_do_not_go_together(refused, options, named):
    Path("p.json").write_text(PLAN)
    assert refused("generate", "a", *options.split(), *OUT, code=2).startswith(f"Invalid value for {named}")


PLAN = (
    '{"todome_plan": 1, "switch": 1, "start": 0, "stop": 1, "seed": 0, '
    '"layers": {"mid.1.0": {"factor": 2, "later": 2, "tokens": 64, "width": [8, 8]}}}'
)


def test_neither_a_prompt_nor_a_picture(refused):
    assert refused("generate", *OUT, code=2).startswith("Invalid value for PROMPT: ")


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ("--factor 0.5", "factor=0.5"),
        ("--ratio 0.9", "ratio=0.9"),
        ("--start 0.5 --stop 0.2", "start=0.5"),
        ("--steps 0", "steps=0"),
        ("--guidance nan", "guidance=nan"),
        ("--scheduler dpm", "scheduler='dpm'"),
        ("--device cuda:77", "device='cuda:77'"),
        ("--dtype int8", "dtype='int8'"),
    ],
)
def test_settings_out_of_range_are_refused_before_a_model_is_opened(refused, weightless, options, given):
    assert is_whole(refused("generate", "a", "--model", weightless, *SMALL, *options.split()), given)


@pytest.mark.parametrize(
    "command",
    [
        "generate a -o a.png --size 64 --factor 99 --model",
        "batch p.txt -o out --size 64 --factor 99 --model",
        "explain --size 64 --factor 99",
        "eval --prompts p.txt --methods todome:2 todome:99 --size 64 -o run",
    ],
)
def test_a_factor_that_no_grid_has_is_refused_before_a_model_is_opened(refused, weightless, command):
    Path("p.txt").write_text("a rose")
    name, *words = command.split()
    asked = (*words, weightless) if words[-1] == "--model" else (weightless, *words)
    assert is_whole(refused(name, *asked), "factor=99")
    assert not Path("run").exists()


def test_a_plan_that_does_not_fit_is_refused_before_a_model_is_opened(refused, weightless):
    Path("p.json").write_text(PLAN)
    assert "another model" in refused("generate", "a", "--model", weightless, "--plan", "p.json", *OUT)
    Path("p.json").write_text(PLAN[:-1] + ', "measured": {"steps": "many"}}')
    assert is_whole(refused("generate", "a", "--plan", "p.json", *OUT), "plan='p.json'")


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."),
        MemoryError(),
    ],
    ids=repr,
)
def test_memory_that_runs_out(refused, opened_once, monkeypatch, error):
    def full(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(opened_once.vae, "decode", full)
    text = refused("generate", "a", *SMALL)
    assert text.startswith("There is not enough memory for 64x64 pixels. ")
    assert not patches_on(opened_once.unet)


def test_other_errors_keep_their_traceback_and_leave_the_pipeline_clean(run, opened_once, monkeypatch):
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug")

    own = opened_once.scheduler
    monkeypatch.setattr(opened_once.vae, "decode", broken)
    result = run("generate", "a", *SMALL, "--scheduler", "ddim")
    assert repr(result.exception) == "RuntimeError('a bug')"
    assert opened_once.scheduler is own
    assert not patches_on(opened_once.unet)
    assert not list(Path().iterdir())


def test_an_option_the_pipeline_does_not_take(flowers, monkeypatch):
    monkeypatch.setattr(type(flowers), "__call__", lambda self, prompt, generator: None)
    with pytest.raises(ValueError, match=r"^guidance_scale=2 cannot be used\. .* StableDiffusionPipeline "):
        make_picture(Settings("a", guidance=2), flowers)


@pytest.mark.parametrize(
    "given",
    [{"seed": np.int64(3)}, {"steps": np.int64(3)}, {"guidance": np.float32(3)}, {"model": Path("a")}],
    ids=str,
)
def test_settings_that_no_file_could_hold_are_refused_before_drawing(given):
    ((name, value),) = given.items()
    with pytest.raises(ValueError, match="cannot be used") as error:
        Settings("a", **given)
    assert is_whole(str(error.value), f"{name}={value!r}")


def test_a_file_that_exists_is_kept(refused, run, opened_once):
    for name in ("a.png", "b-2.png"):
        Path(name).write_text("a user's own")
    for asked in (("generate", "a", *SMALL), ("demo", *OUT), ("generate", "a", "--count", 3, "-o", "b.png")):
        assert re.fullmatch(r"out='(a|b-2).png' exists already\. .+ --force\.", refused(*asked))
    assert {path.name: path.read_text() for path in Path().iterdir()} == dict.fromkeys(
        ("a.png", "b-2.png"), "a user's own"
    )
    assert run("generate", "a", *SMALL, "--force").exit_code == 0
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")


WRITING = {  # what a command is asked for, but for the name of its file or folder
    "generate": ("picture.png", "generate a --model weightless -o"),
    "demo": ("picture.png", "demo -o"),
    "batch": ("folder", "batch p.txt --model weightless --size 64 -o"),
    "eval": ("folder", "eval weightless --prompts p.txt --methods todome:2 --size 64 -o"),
    "bench": ("times.json", "bench weightless --size 64 --methods todome:2 -o"),
    "tune": ("plan.json", "tune weightless --prompts p.txt --keep 40 -o"),
    "tune --run": ("folder", "tune weightless --prompts p.txt --keep 40 -o plan.json --run"),
}


@pytest.mark.parametrize("place", ["/proc", "/proc/nowhere", "/sys", "file", "file/folder", "/dev/null"])
@pytest.mark.parametrize("command", WRITING)
def test_what_cannot_be_written_is_found_before_anything_is_opened(refused, weightless, command, place):
    """Root may write everywhere but there."""
    Path("file").touch()
    Path("p.txt").write_text("a rose\na fox")
    name, words = WRITING[command]
    text = refused(*words.split(), f"{place}/{name}")
    assert re.fullmatch(rf"(out|run)='{place}/{name}' .+\. [A-Z].+\.", text), text
    assert "Errno" not in text
    assert "room" not in text


def test_names_of_pictures_that_cannot_be_used(refused):
    Path("folder.png").mkdir()
    for out, told in {"a.jpg": "a.png", "a": "a.png", "no/a.png": "folder no", "folder.png": "a folder"}.items():
        text = refused("generate", "a", "-o", out)
        assert text.startswith(f"out={out!r} ")
        assert told in text
    assert refused("generate", "a", "-o", f"{'a' * 300}.png").endswith("Choose another place.")


def test_pictures_that_cannot_be_made_again(refused):
    Image.new("RGB", (8, 8)).save("foreign.png")
    Path("text.png").write_text("no picture")
    for name in ("foreign.png", "text.png", "none.png"):
        assert is_whole(refused("generate", "--like", name, *OUT), f"picture='{name}'")


DRAW = """
import resource, sys
from pathlib import Path
from todome.tools.cli import main

taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + int({more}), resource.RLIM_INFINITY))
main()
"""
ASKED = ("generate", "a", "--size", "8192", "--steps", "1", "-o", "a.png", "--device", "cpu")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
@pytest.mark.parametrize("more", [2.5e8, pytest.param(1.3e8, marks=pytest.mark.thorough)])
def test_a_cpu_without_memory(tmp_path, more):
    """In a process that may take so many bytes more than it has: enough to open the model, or hardly."""
    words = [python_after(DRAWING), "-c", DRAW.format(more=more), *ASKED]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: There is not enough memory for "), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_what_a_library_hides_behind_another_error():
    """As diffusers does where a file does not fit: it cannot load the weights, it says."""
    hidden = RuntimeError("unable to mmap 70000000 bytes: Cannot allocate memory (12)")
    with pytest.raises(MemoryError, match=r"^There is not enough memory for it\. Wait\.$"):
        load(OSError("Unable to load weights"), hidden)
    with pytest.raises(ValueError, match="out of memory"):
        load(ValueError("prompt='a robot out of memory'"), RuntimeError("another"))


def load(told: Exception, hidden: Exception) -> None:
    with explain_out_of_memory("it", "Wait"):
        try:
            raise hidden
        except RuntimeError as error:
            raise told from error
