"""`todome train-lora`: from a folder of pictures to a file; what a user can put right is said in a sentence."""

import os
import signal
from pathlib import Path

import pytest
from PIL import Image
from safetensors.torch import load_file

from todome import Downsample, Merge
from todome.tools.commands.train_lora import sampling_reduction
from todome.tools.extras import missing_package
from todome.tools.training.metadata import reduction_in, training_in
from todome.tools.training.trainer import Trainer

SMALL = ("--data", "photos", "--size", 32, "--steps", 2, "--rank", 2, "--cpu")
OUT = ("-o", "a.safetensors")


@pytest.fixture(autouse=True)
def photos(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for colour in ("red", "white"):
        Image.new("RGB", (48, 48), colour).save(tmp_path / f"photos/{colour}.png")
        (tmp_path / f"photos/{colour}.txt").write_text(f"a {colour} tulip")


def test_from_pictures_to_a_file(run, folder):
    options = ("--factor", "2", "--stop", 0.9, "--seed", 5, "--sample", "a tulip", "--sample-reduced")
    result = run("train-lora", folder, *SMALL, *options, *OUT)
    assert result.exit_code == 0, result.output
    assert not result.stderr
    lines = result.stdout.splitlines()
    reduction = Downsample(2, phase="random", stop=0.9, seed=5)
    assert lines[0] == "Pictures: 2. Buckets: 2 of 32x32 pixels."
    assert lines[-1].startswith("a.safetensors: rank 2, 2 steps in ")
    assert lines[-1].endswith(f" s, {reduction}")
    assert reduction_in(Path("a.safetensors")) == reduction
    assert Path("a-run/samples/000002-1.png").is_file()


def test_the_options_are_the_recipe(run, folder):
    options = ("--alpha", 4, "--learning-rate", 0.01, "--batch", 2, "--accumulate", 2, "--ratio", 0.5)
    options += ("--precision", "bf16", "--flip")
    assert run("train-lora", folder, *SMALL, *options, *OUT).exit_code == 0
    told = training_in(Path("a.safetensors"))
    expected = {"alpha": 4, "learning_rate": 0.01, "batch": 2, "batches_per_step": 2, "precision": "bf16"}
    assert {name: told[name] for name in expected} == expected
    assert reduction_in(Path("a.safetensors")) == Merge(0.5)


@pytest.mark.parametrize(
    ("model", "options", "reduction"),
    [
        ("todome-flowers", (), Downsample(2, phase="random")),
        ("todome-flowers", ("--dense",), None),
        ("todome-flowers", ("--phase", "dither", "--factor", "4,2"), Downsample((4, 2))),
        ("other", (), Downsample("auto", phase="random")),
    ],
)
def test_the_reduction_that_is_asked_for(run, monkeypatch, model, options, reduction):
    recipes = []
    monkeypatch.setattr("todome.tools.training.lora.train", lambda recipe, *_, **__: recipes.append(recipe) or 1 / 0)
    result = run("train-lora", model, *SMALL, *options, *OUT)
    assert repr(result.exception) == "ZeroDivisionError('division by zero')"
    assert recipes[0].reduction == reduction


def test_samples_are_sampling_reduction_what_suits_pictures():
    assert sampling_reduction(None) is None
    assert sampling_reduction(Downsample((4, 2), phase="random", stop=0.5, seed=3)) == Downsample((4, 2), seed=3)
    assert sampling_reduction(Merge(0.3, stop=0.5)) == Merge(0.3)


def test_interrupted_and_resumed(run, refused, folder, monkeypatch):
    take_step, small = Trainer.take_step, (*SMALL, "--factor", 2)

    def interrupted(self):
        os.kill(os.getpid(), signal.SIGINT)
        return take_step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "take_step", interrupted)
        result = run("train-lora", folder, *small, *OUT)
    text = "Interrupted, and saved, after step 1 of 2: the same command with --resume continues it.\n"
    assert result.exit_code == 130
    assert result.stderr == text
    remedy = "a-run/checkpoints/000001 is there: go on with --resume, or start over with --force."
    begun = f"out='a.safetensors' cannot be used. Allowed: a file whose training has not begun. {remedy}"
    assert refused("train-lora", folder, *small, *OUT) == begun
    result = run("train-lora", folder, *small, *OUT, "--resume")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1] == "Going on after step 1 of 2."
    assert load_file("a.safetensors")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--factor 2 --dense", "--factor and --dense: They exclude each other: use one of them."),
        ("--phase fixed --ratio 0.5", "--phase: It needs --factor."),
        ("--stop 0.9 --dense", "--stop: It needs --factor or --ratio."),
    ],
)
def test_options_that_do_not_go_together(refused, options, text):
    assert refused("train-lora", *SMALL, *options.split(), *OUT, code=2) == f"Invalid value for {text}"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--data no", "data='no' cannot be used. Allowed: a folder of pictures. There is none of that name."),
        ("--steps 0", "steps=0 cannot be used. Allowed: a whole number of at least 1. The usual one is 1000."),
        (
            "--sample-every 0",
            "sample_every=0 cannot be used. Allowed: a whole number of at least 1. The usual one is 250.",
        ),
        (
            "--precision int8",
            "precision='int8' cannot be used. Allowed: auto, no, fp16, bf16. \"auto\" is the best there is.",
        ),
        (
            "--out a.png",
            "out='a.png' does not end in .safetensors, the format of LoRAs. Use a.safetensors.",
        ),
    ],
)
def test_what_cannot_be_trained(refused, options, text):
    assert refused("train-lora", *SMALL, *OUT, *options.split()) == text
    assert not list(Path().glob("a*"))


def test_help_and_what_it_needs(run):
    help = run("train-lora", "--help").stdout
    assert "accelerate launch" in help
    text = 'Error: This needs peft, which is missing. Install it: pip install "todome[cli]"'
    assert missing_package(ModuleNotFoundError(name="peft.utils")) == text
