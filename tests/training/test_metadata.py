"""A LoRA's file says what it was trained with, in kohya's words and in ours."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from todome import Downsample, Merge
from todome.tools.training.lora import train
from todome.tools.training.metadata import kohya_metadata, lora_metadata, reduction_in, training_in


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (2, {"ss_todo_factor": "[2.0]", "ss_todo_max_depth": "1"}),
        ((4, 2), {"ss_todo_factor": "[4.0, 2.0]", "ss_todo_max_depth": "2"}),
        (1.5, {"ss_todo_factor": "[1.5]", "ss_todo_max_depth": "1"}),
        ("auto", {}),
    ],
)
def test_kohyas_words(factor, words):
    assert kohya_metadata(Downsample(factor)) == words


@pytest.mark.parametrize("reduction", [None, Merge(0.5)])
def test_what_kohya_has_no_words_for(reduction):
    assert kohya_metadata(reduction) == {}


@pytest.mark.parametrize(
    "reduction",
    [None, Downsample(), Downsample((4, 2), phase="random", stop=0.9, seed=7), Merge((0.5, 0.3), random=False)],
)
def test_the_reduction_is_read_back(tmp_path, reduction):
    save_file({"a": torch.zeros(1)}, tmp_path / "a.safetensors", lora_metadata(reduction, steps=3))
    assert reduction_in(tmp_path / "a.safetensors") == reduction
    assert training_in(tmp_path / "a.safetensors")["steps"] == 3


def test_what_a_trained_file_says(recipe, tmp_path, tiny):
    asked = recipe(steps=1, accumulate=2, alpha=4)
    train(asked, tmp_path / "a.safetensors", cpu=True)
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        said = file.metadata()
    assert (said["ss_todo_factor"], said["ss_todo_max_depth"], said["format"]) == ("[2.0]", "1", "pt")
    told = json.loads(said["todome"])
    assert set(told.pop("versions")) == {"todome", "torch", "diffusers", "peft"}
    assert told.pop("reduction")["name"] == "Downsample"
    assert told == {
        "model": "tiny",
        "step": 1,
        "pictures": 4,
        "batches_per_step": 2,
        "rank": 2,
        "alpha": 4,
        "learning_rate": 1e-4,
        "steps": 1,
        "batch": 2,
        "size": 32,
        "precision": "no",
        "seed": 0,
    }
    assert str(tmp_path) not in str(said)
    assert reduction_in(tmp_path / "a.safetensors") == asked.reduction


def test_files_that_say_nothing(tmp_path, says):
    allowed = "Allowed: a .safetensors file that todome train-lora made."
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    (tmp_path / "text.safetensors").write_text("no weights")
    for name in ("foreign", "text"):
        path = tmp_path / f"{name}.safetensors"
        with says(ValueError, f"lora='{path}' cannot be used. {allowed} This one says nothing of its training."):
            reduction_in(path)
    path = tmp_path / "none.safetensors"
    with says(FileNotFoundError, f"lora='{path}' cannot be used. {allowed} There is no file of that name."):
        reduction_in(path)
