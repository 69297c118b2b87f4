"""The training ends in an ordinary pipeline, built like the one that is shipped."""

import json
from pathlib import Path
from typing import Any

import checkpoints
import export
import pytest
import todome_flowers
from diffusers import StableDiffusionPipeline
from models import make_tokenizer
from runs import state_of
from safetensors.torch import load_file
from words import vocabulary

from todome.tools.quiet import quiet_loading

pytestmark = pytest.mark.thorough  # it trains the real networks


def described(folder: Path) -> dict[str, Any]:
    """Every file of a pipeline with what it says, but for weights, the order of the tokens and who wrote it."""
    files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    told: dict[str, Any] = dict.fromkeys(files)
    told |= {name: json.loads(file.read_text()) for name, file in files.items() if file.suffix == ".json"}
    told["tokenizer/tokenizer.json"] = sorted(told["tokenizer/tokenizer.json"]["model"]["merges"])
    told["tokenizer/vocab.json"] = sorted(told["tokenizer/vocab.json"])
    del told["text_encoder/config.json"]["transformers_version"]
    return told


def test_the_whole_training_ends_in_a_pipeline_built_like_the_one_that_is_shipped(trained, exported):
    with quiet_loading():
        pipe = StableDiffusionPipeline.from_pretrained(exported)
    pipe.set_progress_bar_config(disable=True)
    made: Any = pipe("a red tulip", height=64, width=64, num_inference_steps=2)
    assert made.images[0].size == (64, 64)
    assert described(exported) == described(todome_flowers.path())
    assert json.loads((exported / "tokenizer" / "vocab.json").read_text()) == make_tokenizer(vocabulary()).get_vocab()
    kept = load_file(exported / "unet" / "diffusion_pytorch_model.safetensors")
    average, state = checkpoints.read_weights(trained, "unet"), state_of(trained)["unet"]
    assert kept.keys() == average.keys() == state.keys()
    assert all(kept[name].equal(average[name].half()) for name in kept)
    assert not all(average[name].equal(state[name]) for name in state)


def test_a_failed_export_leaves_the_old_one(trained, exported, monkeypatch):
    before = sorted(exported.parent.rglob("*"))

    monkeypatch.delattr(export, "drop_derived")
    with pytest.raises(NameError, match="drop_derived"):
        export.export(export.assemble(trained), exported)
    assert sorted(exported.parent.rglob("*")) == before
