"""What the tests of the trainer share: photos, a tiny model on disk, and trainers that are ready to step."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from accelerate import Accelerator
from lora_photos import draw_photos, small_recipe
from zoo import small_unet, talking, tiny_pipeline

from todome.tools.training.dataset import read_examples
from todome.tools.training.recipe import Recipe
from todome.tools.training.trainer import Trainer


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return draw_photos(tmp_path / "photos")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a pipeline that predicts noise: random weights, in which a step takes no time."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    talking(tiny_pipeline(unet=small_unet())).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def recipe(photos: Path, tiny: str) -> Callable[..., Recipe]:
    """Recipes for the tiny model, if not told otherwise."""
    return partial(small_recipe, photos, model=tiny)


@pytest.fixture
def trainer() -> Callable[[Recipe], Trainer]:
    return lambda recipe: Trainer(recipe, read_examples(recipe.data, recipe.caption), Accelerator(cpu=True))


def says(kind: type[Exception], text: str) -> Any:
    """The whole message, word for word."""
    return pytest.raises(kind, match=f"^{re.escape(text)}$")


@pytest.fixture(name="says")
def say() -> Callable[..., Any]:
    return says
