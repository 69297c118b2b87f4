"""Pictures on the way show the LoRA without the reduction of the training, and change nothing in it."""

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from zoo import recording

from todome import Downsample
from todome.hooks.modules import clocks_on
from todome.tools.training.lora import Samples, train
from todome.tools.training.trainer import dense_copy


def test_samples_change_nothing_in_the_training(recipe, tmp_path):
    asked = recipe(steps=2)
    samples = Samples(["a red tulip", "a white one"], every=1, steps=1, reduction=Downsample(2))
    train(asked, tmp_path / "with.safetensors", samples=samples, cpu=True)
    train(asked, tmp_path / "without.safetensors", cpu=True)
    expected = load_file(tmp_path / "without.safetensors")
    trained = load_file(tmp_path / "with.safetensors")
    assert all(torch.equal(trained[name], weight) for name, weight in expected.items())
    drawn = sorted(path.name for path in (tmp_path / "with-run/samples").iterdir())
    assert drawn == ["000001-1.png", "000001-2.png", "000002-1.png", "000002-2.png"]
    with Image.open(tmp_path / "with-run/samples/000002-2.png") as picture:
        assert (picture.size, picture.info["prompt"], picture.info["training step"]) == ((32, 32), "a white one", "2")


def test_after_samples_the_training_is_reduced_again(recipe, trainer, tmp_path):
    one = trainer(recipe())
    one.take_step()
    one.draw(Samples(["a tulip"], steps=1), tmp_path)
    assert [clock.reduction for clock in clocks_on(one.unet)] == [one.recipe.reduction]
    with recording(one.unet) as record:
        one.take_step()
    assert record.reduced == [True]


def test_samples_are_drawn_with_the_weights_as_they_are_and_without_hooks(recipe, trainer):
    one = trainer(recipe(checkpointing=True))
    copied = dense_copy(one.unet)
    weights = dict(one.unet.named_parameters())
    assert all(parameter is weights[name] for name, parameter in copied.named_parameters())
    assert not clocks_on(copied)
    assert clocks_on(one.unet)


def test_drawing_leaves_the_pipeline_as_it_was_also_after_a_failure(recipe, trainer, tmp_path):
    one = trainer(recipe())
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        one.draw(Samples(["a tulip"], steps=1), tmp_path / "file")
    assert one.pipe.unet is one.unet
    assert [clock.reduction for clock in clocks_on(one.unet)] == [one.recipe.reduction]
