"""What the trainer learns from in the tests: drawn pictures of three shapes, by recipes that take no time."""

from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from todome import Downsample
from todome.tools.training.recipe import Recipe

SHAPES = {"red": (96, 96), "yellow": (160, 96), "white": (72, 72), "pink": (60, 120)}


def draw_photos(folder: Path) -> Path:
    """Four pictures with captions beside them."""
    folder.mkdir()
    for colour, size in SHAPES.items():
        picture = Image.new("RGB", size, "darkgreen")
        ImageDraw.Draw(picture).ellipse((10, 10, 50, 50), colour)
        picture.save(folder / f"{colour}.png")
        (folder / f"{colour}.txt").write_text(f"a {colour} tulip\n")
    return folder


def small_recipe(data: Path, **changes: Any) -> Recipe:
    settings = {"steps": 3, "size": 32, "rank": 2, "batch": 2, "reduction": Downsample(2, phase="random", seed=3)}
    return Recipe(data, **{**settings, **changes})
