"""Errors a user can put right: a full sentence and the right exit code; nothing is lost or left behind."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from PIL import Image
from zoo import small_unet, talking, tiny_pipeline

from todome.hooks.modules import clocks_on
from todome.tools.generate import Settings, make_picture
from todome.tools.schedulers import SCHEDULERS

MODELS = (
    'Allowed: "todome-flowers", a folder, a .safetensors checkpoint, or a hub id such as '
    '"stable-diffusion-v1-5/stable-diffusion-v1-5".'
)
REMADE = "Allowed: a PNG file that todome made."
OUT = ("-o", "a.png")
SMALL = ("--size", "64x64", "--steps", 1, *OUT)


@pytest.mark.parametrize("model", ["nowhere", "./no/where", "/no", "a/b/c"])
def test_no_such_folder(refused, model):
    text = f"model={model!r} cannot be used. {MODELS} Nothing is there: check the spelling."
    assert refused("generate", "a", "--model", model, *OUT) == text


def test_a_hub_id_that_cannot_be_reached(refused):
    remedy = "Neither a folder here nor reachable on the hub: check the spelling and the network."
    assert refused("generate", "a", "--model", "no/such", *OUT) == f"model='no/such' cannot be used. {MODELS} {remedy}"


def test_a_folder_that_is_no_pipeline(refused, tmp_path):
    (tmp_path / "model").mkdir()
    allowed = "Allowed: a folder with a model_index.json, as diffusers saves pipelines."
    text = f"model='model' cannot be used. {allowed} Name the folder that save_pretrained made."
    assert refused("generate", "a", "--model", "model", *OUT) == text


def test_a_pipeline_that_cannot_be_opened(refused, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model_index.json").write_text("{")
    says = "It says: It looks like the config file at 'model/model_index.json' is not a valid JSON file."
    text = f"model='model' cannot be used. Allowed: a pipeline that diffusers can open. {says}"
    assert refused("generate", "a", "--model", "model", *OUT) == text


def test_a_pipeline_without_a_prompt(refused, tmp_path):
    blocks: Any = {"down_block_types": ("DownBlock2D",), "up_block_types": ("UpBlock2D",)}
    unet = UNet2DModel(sample_size=8, layers_per_block=1, block_out_channels=(8,), norm_num_groups=4, **blocks)
    DDPMPipeline(unet, DDPMScheduler()).save_pretrained(tmp_path / "model")
    allowed = "Allowed: a pipeline that makes a picture from a text."
    text = f"model='model' cannot be used. {allowed} DDPMPipeline makes something else, or from something else."
    assert refused("generate", "a", "--model", "model", *OUT) == text


def test_a_model_with_nothing_to_reduce(refused, run, tmp_path):
    blocks: Any = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
    unet = small_unet(**blocks, mid_block_type=None)
    talking(tiny_pipeline(unet=unet)).save_pretrained(tmp_path / "model")
    asked = ("generate", "a", "--model", "model", "--steps", 1, *OUT)
    text = refused(*asked)
    assert "UNet2DConditionModel" in text
    assert text.endswith(" Make the picture with --dense.")
    assert run(*asked, "--dense").exit_code == 0


@pytest.mark.parametrize(
    ("size", "side", "near"),
    [
        ("250x130", "Width 250", "248 or 256"),
        ("256x201", "Height 201", "200 or 208"),
        ("1x1", "Width 1", "8"),
        ("0x64", "Width 0", "8"),
        ("300X256", "Width 300", "296 or 304"),
        ("100", "Width 100", "96 or 104"),
    ],
)
def test_a_size_the_model_cannot_make(refused, monkeypatch, size, side, near):
    monkeypatch.setattr("todome.tools.pipelines.open_pipeline", None)  # known before that
    text = f"{side} does not work: this model needs multiples of 8. Try {near}."
    assert refused("generate", "a", "--size", size, *OUT) == text


@pytest.mark.parametrize("size", ["x256", "256x", "256x256x3", "a x b", "-16x16", ""])
def test_no_size_at_all(refused, size):
    text = f"Invalid value for --size: {size!r} is not a size, such as 512 or 512x768."
    assert refused("generate", "a", f"--size={size}", *OUT, code=2) == text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--factor 2 --ratio 0.5", "--factor and --ratio: They exclude each other: use one of them."),
        ("--factor 2 --dense", "--factor and --dense: They exclude each other: use one of them."),
        ("--ratio 0.5 --dense", "--ratio and --dense: They exclude each other: use one of them."),
        ("--phase fixed --dense", "--phase: It needs --factor."),
        ("--phase fixed --ratio 0.5", "--phase: It needs --factor."),
        ("--start 0.5 --dense", "--start: It needs --factor or --ratio."),
        ("--stop 0.5 --dense", "--stop: It needs --factor or --ratio."),
        ("--factor two", "--factor: 'two' is not a number, or one for each level, such as 4,2; or auto."),
        (
            "--factor 2 --factor auto",
            "--factor: '2,auto' is not a number, or one for each level, such as 4,2; or auto.",
        ),
        ("--ratio auto", "--ratio: 'auto' is not a number, or one for each level, such as 0.5,0.3."),
    ],
)
def test_options_that_do_not_go_together(refused, options, text):
    assert refused("generate", "a", *options.split(), *OUT, code=2) == f"Invalid value for {text}"


def test_neither_a_prompt_nor_a_picture(refused):
    text = "Invalid value for PROMPT: Say what to draw, or name a picture to make again with --like."
    assert refused("generate", *OUT, code=2) == text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            "--factor 0.5",
            'factor=0.5 cannot be used. Allowed: "auto", a number of at least 1, or one number per level. '
            "Use factor=1 to leave a level dense.",
        ),
        (
            "--ratio 0.9",
            "ratio=0.9 cannot be used. Allowed: from 0 to 0.75 with stride=(2, 2), or one such number per level. "
            "Lower the ratio or use a larger stride.",
        ),
        (
            "--factor 2,2,2,2",
            "factor=(2, 2, 2, 2) cannot be used. Allowed: at most 3 values, one for each level this model has. "
            "Leave out the last 1.",
        ),
        (
            "--factor 20",
            "factor=20 cannot be used. Allowed: at most 16 on a grid of 16x16 tokens. "
            "Lower the factor, or make the picture larger.",
        ),
        (
            "--start 0.5 --stop 0.2",
            "start=0.5 cannot be used. Allowed: at most stop, which is 0.2. Swap them, or raise stop to 0.5 or more.",
        ),
        (
            "--seed -1",
            "seed=-1 cannot be used. Allowed: a whole number from 0 to 2**63 - 1. The default is seed=0.",
        ),
        ("--steps 0", "steps=0 cannot be used. Allowed: a whole number of at least 1. 25 is a good start."),
        (
            "--guidance nan",
            "guidance=nan cannot be used. Allowed: a number of at least 0. 1 is no guidance, 3 to 8 is usual.",
        ),
        (
            "--scheduler dpm",
            f"scheduler='dpm' cannot be used. Allowed: {', '.join(SCHEDULERS)}. Leave it out to keep the model's own.",
        ),
    ],
)
def test_settings_out_of_range(refused, opened_once, options, text):
    assert refused("generate", "a", *SMALL, *options.split()) == text
    assert not clocks_on(opened_once.unet)


@pytest.mark.parametrize("device", ["cuda:77", "abacus"])
def test_a_device_that_is_not_there(refused, device):
    allowed = 'Allowed: "auto", "cpu", or a GPU that torch can reach here. "auto" takes the best there is.'
    assert refused("generate", "a", "--device", device, *OUT) == f"device={device!r} cannot be used. {allowed}"


def test_an_unknown_dtype(refused):
    allowed = 'Allowed: "auto", float32, float16, bfloat16. "auto" is float16 on a GPU and float32 on a CPU.'
    assert refused("generate", "a", "--dtype", "int8", *OUT) == f"dtype='int8' cannot be used. {allowed}"


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
    remedy = "Lower the size, use float16, or a larger factor."
    assert refused("generate", "a", *SMALL) == f"There is not enough memory for 64x64 pixels. {remedy}"
    assert not clocks_on(opened_once.unet)


def test_memory_that_runs_out_for_the_model(refused, monkeypatch):
    def full(*_: Any, **__: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("diffusers.DiffusionPipeline.to", full)
    remedy = "Use float16, another device, or a smaller model."
    text = f"There is not enough memory for todome-flowers on cpu. {remedy}"
    assert refused("generate", "a", "--device", "cpu", *SMALL) == text


def test_other_errors_keep_their_traceback_and_leave_the_pipeline_clean(run, opened_once, monkeypatch):
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug")

    own = opened_once.scheduler
    monkeypatch.setattr(opened_once.vae, "decode", broken)
    result = run("generate", "a", *SMALL, "--scheduler", "ddim")
    assert repr(result.exception) == "RuntimeError('a bug')"
    assert opened_once.scheduler is own
    assert not clocks_on(opened_once.unet)
    assert not list(Path().iterdir())


def test_an_option_the_pipeline_does_not_take(flowers, monkeypatch):
    monkeypatch.setattr(type(flowers), "__call__", lambda self, prompt, generator: None)
    text = r"guidance_scale=2 cannot be used. Allowed: nothing, StableDiffusionPipeline does not take it. Leave it out."
    with pytest.raises(ValueError, match=f"^{text}$"):
        make_picture(Settings("a", guidance=2), flowers)


@pytest.mark.parametrize(
    "given",
    [{"seed": np.int64(3)}, {"steps": np.int64(3)}, {"guidance": np.float32(3)}, {"model": Path("a")}],
    ids=str,
)
def test_settings_that_no_file_could_hold_are_refused_before_drawing(given):
    ((name, value),) = given.items()
    allowed = "Allowed: what JSON can hold, as settings are written so. Convert it with int(), float() or str()."
    with pytest.raises(ValueError, match=re.escape(f"{name}={value!r} cannot be used. {allowed}")):
        Settings("a", **given)


def test_a_file_that_exists_is_kept(refused, run, opened_once):
    Path("a.png").write_text("a user's own")
    text = "out='a.png' exists already. "
    assert refused("generate", "a", *SMALL) == text + "Choose another name, or overwrite it with --force."
    assert refused("demo", *OUT) == text + "Choose another name, or overwrite it with --force."
    assert Path("a.png").read_text() == "a user's own"
    assert run("generate", "a", *SMALL, "--force").exit_code == 0
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")


def test_one_of_several_files_that_exists_is_kept(refused):
    Path("a-2.png").write_text("a user's own")
    text = "out='a-2.png' exists already. "
    told = refused("generate", "a", "--count", 3, *SMALL)
    assert told == text + "Choose another name, or overwrite it with --force."
    assert [path.name for path in Path().iterdir()] == ["a-2.png"]


@pytest.mark.parametrize("command", [("generate", "a"), ("demo",)], ids=str)
def test_files_that_cannot_be_written(refused, tmp_path, monkeypatch, command):
    (tmp_path / "folder.png").mkdir()
    suffix = "does not end in .png, the format that holds the settings."
    for out, text in {
        "a.jpg": f"{suffix} Use a.png.",
        "a": f"{suffix} Use a.png.",
        "no/a.png": "is in a folder that does not exist. Make the folder no first.",
        "folder.png": "is a folder. Choose another name.",
    }.items():
        assert refused(*command, "-o", out) == f"out={out!r} {text}"
    monkeypatch.setattr("os.access", lambda *_: False)
    text = f"out='a.png' is in a folder you may not write to. Choose another than {tmp_path}."
    assert refused(*command, *OUT) == text


def test_pictures_that_cannot_be_made_again(refused):
    Image.new("RGB", (8, 8)).save("foreign.png")
    Path("text.png").write_text("no picture")
    foreign = "picture='foreign.png' cannot be used."
    assert refused("generate", "--like", "foreign.png", *OUT) == (
        f"{foreign} {REMADE} This one has no settings of todome in it."
    )
    for name in ("text.png", "none.png"):
        text = f"picture='{name}' cannot be used. {REMADE} There is no picture of that name."
        assert refused("generate", "--like", name, *OUT) == text
