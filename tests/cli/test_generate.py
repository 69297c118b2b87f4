"""`todome generate`: the pictures, their settings, and that the one leads to the other, whoever made it."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DiffusionPipeline, __version__
from PIL import Image
from safetensors.torch import save_file
from zoo import plan_of, planned

import todome
from todome import Downsample, Merge, Plan
from todome.hosts import find_layers
from todome.tools.commands import app
from todome.tools.generate import Generated, Settings, make_picture, recommended_settings, settings_of
from todome.tools.pictures import read_texts, write_png
from todome.tools.pipelines import size_step
from todome.tools.schedulers import SCHEDULERS

SMALL = ("--size", "64x64", "--steps", 2, "--device", "cpu")


NOTHING_TO_GAIN = pytest.mark.filterwarnings("always:factor=.auto. leaves this model dense:UserWarning")


def pixels(path: Path | str) -> Any:
    with Image.open(path) as picture:
        return np.asarray(picture)


def facts(path: Path | str) -> dict[str, Any]:
    return json.loads(read_texts(Path(path))["todome"])


def plain_call(pipe: Any, **options: Any) -> Any:
    return np.asarray(pipe("a rose", generator=torch.Generator().manual_seed(5), **options).images[0])


def test_a_picture_and_what_is_said(run):
    """Width comes first."""
    result = run("generate", "a red tulip", "-o", "tulip.png", "--size", "96x64", "--steps", 2, "--device", "cpu")
    assert result.exit_code == 0, result.output
    said = result.stdout.splitlines()
    assert said[0].startswith("tulip.png: 96x64 pixels in ")
    assert said[1] == f"{Downsample(2)} on UNet2DConditionModel"
    assert said[2] == "  level 1, 5 layers: factor 2, 16x24 = 384 -> 96 keys"
    assert pixels("tulip.png").shape == (64, 96, 3)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--factor", "2,2", "--phase", "fixed", "--stop", 0.5),
        ("--ratio", 0.5, "--ratio", 0.25),
        ("--dense", "--negative", "grey", "--scheduler", "euler-a", "--guidance", 2),
        ("--factor", 1.5, "--dtype", "bfloat16", "--seed", 2**62),
    ],
    ids=str,
)
def test_a_picture_made_again_from_itself_is_the_same_file(run, options):
    assert run("generate", "a tulip, ünïcode\nand lines", "-o", "one.png", *SMALL, *options).exit_code == 0
    assert run("generate", "--like", "one.png", "--device", "cpu", "-o", "again.png").exit_code == 0
    assert Path("one.png").read_bytes() == Path("again.png").read_bytes()


def test_other_options_change_a_picture_made_again(run, opened_once):
    first = ("--factor", 2, "--phase", "fixed", "--stop", 0.5, "--negative", "grey")
    assert run("generate", "a rose", "-o", "one.png", *SMALL, *first).exit_code == 0
    changes = ("--seed", 3, "--factor", 4, "--start", 0.25)
    assert run("generate", "", "--like", "one.png", "-o", "other.png", *changes).exit_code == 0
    settings = settings_of(Path("other.png"))
    assert settings.reduction == Downsample(4, phase="fixed", start=0.25, stop=0.5)
    assert (settings.prompt, settings.negative, settings.seed, settings.steps) == ("", "grey", 3, 2)
    assert run("generate", "--like", "other.png", "-o", "afresh.png", "--ratio", 0.5).exit_code == 0
    assert settings_of(Path("afresh.png")).reduction == Merge(0.5)  # of another kind


def test_all_settings_are_in_the_file(run, opened_once):
    options = ("--negative", "grey", "--seed", 7, "--scheduler", "euler", "--ratio", 0.5, "--guidance", 2.5)
    assert run("generate", "a red tulip", "-o", "tulip.png", *SMALL, *options).exit_code == 0
    merge = {"stride": [2, 2], "random": True, "attention": True, "cross_attention": False, "feed_forward": False}
    assert facts("tulip.png") == {
        "prompt": "a red tulip",
        "negative": "grey",
        "model": "todome-flowers",
        "seed": 7,
        "size": [64, 64],
        "steps": 2,
        "guidance": 2.5,
        "scheduler": "euler",
        "sampler": "Euler",
        "reduction": {"name": "Merge", "ratio": 0.5, **merge, "start": 0.0, "stop": 1.0, "seed": 0},
        "device": "cpu",
        "dtype": "float32",
        "loras": [],
        "vae": None,
        "versions": {"todome": "0.1.0", "torch": torch.__version__, "diffusers": __version__},
    }
    reduction = str(Merge(0.5))
    assert read_texts(Path("tulip.png"))["parameters"] == (
        "a red tulip\nNegative prompt: grey\nSteps: 2, Sampler: Euler, CFG scale: 2.5, Seed: 7, Size: 64x64, "
        f'Model: todome-flowers, Token reduction: "{reduction}", Version: todome 0.1.0'
    )


def test_it_draws_what_the_pipeline_and_apply_draw(run, opened_once):
    options: Any = {"height": 64, "width": 64, "num_inference_steps": 2, "guidance_scale": 3.0}
    dense = run("generate", "a rose", "-o", "dense.png", "--seed", 5, "--dense", *SMALL)
    assert dense.stdout.endswith("\nfull attention (dense)\n")
    assert (pixels("dense.png") == plain_call(opened_once, **options)).all()
    assert run("generate", "a rose", "-o", "reduced.png", "--seed", 5, "--factor", "4,2", *SMALL).exit_code == 0
    with todome.apply(opened_once, Downsample((4, 2))):
        assert (pixels("reduced.png") == plain_call(opened_once, **options)).all()


@pytest.fixture
def plan(folder: Path, tmp_path: Path) -> dict[str, Any]:
    """A plan for the tiny pipeline in plan.json, with a LoRA and a VAE, and the settings it was measured with."""
    pipe = DiffusionPipeline.from_pretrained(folder)
    down, up = torch.randn(2, 8), torch.randn(8, 2)
    layer = "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"
    save_file({f"{layer}.lora_A.weight": down, f"{layer}.lora_B.weight": up}, tmp_path / "ink.safetensors")
    pipe.vae.save_pretrained(tmp_path / "vae")
    own = {"size": [64, 32], "steps": 3, "guidance": 2.5, "scheduler": "euler-a"}
    own |= {"loras": ["ink.safetensors:0.5"], "vae": "vae"}
    layers = {one.name: planned(2, 512 // 4**one.scale, one.width) for one in find_layers(pipe.unet)}
    plan_of(layers, own).save(tmp_path / "plan.json")
    return own


@NOTHING_TO_GAIN
@pytest.mark.parametrize("command", ["generate", "batch"])
def test_a_plan_brings_all_that_it_was_measured_with(run, folder, plan, command):
    Path("prompts.txt").write_text("a rose")
    asked = ("a rose", "-o", "a.png") if command == "generate" else ("prompts.txt", "-o", "out")
    result = run(command, *asked, "--model", folder, "--plan", "plan.json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    (made,) = Path().rglob("*.png")
    assert {name: facts(made)[name] for name in plan} == plan


def test_options_go_before_what_a_plan_was_measured_with(run, folder, plan):
    asked = {
        "size": "32x64",
        "steps": 2,
        "guidance": 1.5,
        "scheduler": "ddim",
        "lora": "ink.safetensors:2",
        "stop": 0.5,
    }
    options = [word for name, value in asked.items() for word in (f"--{name}", value)]
    result = run("generate", "a", "-o", "a.png", "--model", folder, "--plan", "plan.json", *options)
    assert result.exit_code == 0, result.output
    found = facts("a.png")
    own = {"size": [32, 64], "steps": 2, "guidance": 1.5, "scheduler": "ddim", "loras": ["ink.safetensors:2"]}
    assert {name: found[name] for name in plan} == {**plan, **own}
    assert settings_of(Path("a.png")).reduction == Plan.load("plan.json").within(stop=0.5)


@NOTHING_TO_GAIN
def test_another_model_keeps_its_own_defaults(folder, run):
    result = run("generate", "a rose", "--model", folder, "-o", "own.png")
    assert result.exit_code == 0
    assert result.stderr.startswith('Note: factor="auto" leaves this model dense: its finest grid has 16x16 tokens')
    found = facts("own.png")
    assert (found["size"], found["steps"], found["guidance"]) == ([32, 32], 50, 7.5)
    assert found["model"] == str(folder)
    assert found["reduction"]["factor"] == "auto"


def test_each_of_several_pictures_can_be_made_alone(run, opened_once):
    result = run("generate", "a rose", "-o", "rose.png", "--count", 3, "--seed", 4, "--scheduler", "euler-a", *SMALL)
    assert [line.split(":")[0] for line in result.stdout.splitlines()[:3]] == [f"rose-{i}.png" for i in (1, 2, 3)]
    assert not Path("rose.png").exists()
    assert [facts(f"rose-{i}.png")["seed"] for i in (1, 2, 3)] == [4, 5, 6]
    assert run("generate", "a rose", "-o", "alone.png", "--seed", 5, "--scheduler", "euler-a", *SMALL).exit_code == 0
    assert Path("alone.png").read_bytes() == Path("rose-2.png").read_bytes()
    assert not (pixels("rose-1.png") == pixels("rose-2.png")).all()


@pytest.mark.parametrize(
    "name",
    [name if name in ("ddim", "euler-a") else pytest.param(name, marks=pytest.mark.thorough) for name in SCHEDULERS],
)
def test_every_scheduler_makes_a_picture_and_leaves(flowers, name):
    own = flowers.scheduler
    settings = Settings("a rose", size=(64, 64), steps=3, scheduler=name, reduction=Downsample(2))
    made = make_picture(settings, flowers)
    assert made.sampler == SCHEDULERS[name].title
    assert np.isfinite(np.asarray(made.picture)).all()
    assert (np.asarray(make_picture(settings, flowers).picture) == np.asarray(made.picture)).all()
    assert flowers.scheduler is own


def test_the_sides_a_model_can_draw(flowers, folder):
    assert size_step(flowers) == 8
    assert size_step(DiffusionPipeline.from_pretrained(folder)) == 8
    made = make_picture(Settings("a rose", size=(136, 72), steps=1, reduction=Downsample(2)), flowers)
    assert made.picture.size == (136, 72)  # latents of 34 x 18, which no halving after the first divides


def test_from_python_the_pipeline_opens_by_itself():
    made = make_picture(Settings("a rose", size=(32, 32), steps=1, device="cpu"))
    assert isinstance(made, Generated)
    assert made.picture.size == (32, 32)
    assert made.reduced == "dense"


def test_what_is_recommended_settings():
    assert recommended_settings() == Settings(size=(256, 256), steps=25, guidance=3.0, reduction=Downsample(2))
    assert recommended_settings("some/model") == Settings(model="some/model", reduction=Downsample("auto"))


AGAIN = ("generate", "--like", "one.png", "-o", "again.png")


def picture(model: str, device: str = "cpu") -> None:
    """A file that says it was made with a model."""
    settings = Settings("a", model=model, size=(32, 32), steps=1, reduction=Downsample(2), device=device)
    made = Generated(Image.new("RGB", (32, 32)), settings, "DDIM", 1.0, "")
    write_png(made.picture, Path("one.png"), made.texts(), force=True)


def test_a_plan_in_a_picture_of_todome_0_1_is_read(run):
    picture("todome-flowers")
    old = {"layers": {"up.1.0": [4, 2, 64, [8, 8]]}, "switch": 0.25, "start": 0.0, "stop": 0.9, "seed": 3}
    found = facts("one.png") | {"reduction": {"name": "Plan", **old, "measured": {"psnr": 45.2, "steps": 3}}}
    write_png(Image.new("RGB", (32, 32)), Path("old.png"), {"todome": json.dumps(found)})
    plan = settings_of(Path("old.png")).reduction
    assert isinstance(plan, Plan)
    assert plan == plan_of({"up.1.0": planned(4, 64, (8, 8), later=2, switch=0.25)}, stop=0.9, seed=3)
    assert (plan.conditions, plan.evidence) == ({"steps": 3}, {"psnr": 45.2})


def test_without_a_terminal_a_model_of_the_picture_is_refused(refused):
    picture("some/model; rm")
    assert refused(*AGAIN, code=2).endswith("If you trust it, say so with --model 'some/model; rm'.")
    assert not Path("again.png").exists()


def test_the_device_is_not_the_picture_s(run, opened_once):
    picture("todome-flowers", device="cuda:77")
    assert run(*AGAIN, "--device", "cpu").exit_code == 0
    assert run(*AGAIN, "--force").exit_code == 0


@pytest.fixture
def terminal() -> Iterator[Callable[[str], int]]:
    """Types an answer, and gives the end of a terminal at which it can be read."""
    ends: list[int] = []

    def typed(answer: str) -> int:
        ends.extend(os.openpty())
        os.write(ends[0], f"{answer}\n".encode())
        return ends[1]

    yield typed
    for end in ends:
        os.close(end)


@pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_it_asks(run, folder, terminal, monkeypatch, capsys, answer):
    """In this process: another one would import diffusers for as long as all else here takes."""
    picture(str(folder))
    with open(terminal(answer), closefd=False) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(SystemExit) as ended:
            app([*AGAIN, "--device", "cpu"], prog_name="todome")
    assert ended.value.code == (0 if answer == "y" else 1)
    assert capsys.readouterr().err.startswith(f"'one.png' names the model {str(folder)!r}. Use it? [y/N]:")
    assert Path("again.png").exists() == (answer == "y")
