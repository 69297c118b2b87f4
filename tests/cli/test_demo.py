"""`todome demo`: four pictures, their numbers, and nothing left on the pipeline."""

import re

import numpy as np
import pytest
import todome_flowers
from PIL import Image

from todome.hooks.attaching import patches_on
from todome.tools.demo import METHODS, compare
from todome.tools.generate import Settings
from todome.tools.sheets import MARGIN


@pytest.mark.usefixtures("opened_once")
def test_four_pictures_and_their_numbers(run):
    result = run("demo", "--size", "64x64", "--steps", 2, "--prompt", "a daisy", "-o", "sheet.png")
    assert result.exit_code == 0, result.output
    assert re.search(r"\| dense +\| every token +\| [\d.]+ +\| 1.00x +\| - +\|", result.stdout)
    for name in ("ToMe", "ToDo", "todome"):
        assert re.search(rf"\| {name} +\| [^|]+ \| [\d.]+ +\| [\d.]+x +\| [\d.]+ dB +\|", result.stdout)
    assert result.stdout.endswith("Pictures: sheet.png\n")
    with Image.open("sheet.png") as page:
        assert page.width == 2 * MARGIN + 4 * 256 + 3 * 28
        texts = page.text  # pyright: ignore[reportAttributeAccessIssue]
        assert texts == {"Title": "a daisy", "weights": todome_flowers.fingerprint()}


def test_methods_are_compared_on_equal_terms(flowers):
    results = compare(flowers, Settings("a rose", size=(64, 64), steps=2, guidance=3.0))
    assert [result.name for result in results] == list(METHODS)
    assert [result.made.settings.reduction for result in results] == list(METHODS.values())
    assert len({(one.made.settings.prompt, one.made.settings.seed, one.made.settings.steps) for one in results}) == 1
    assert len({np.asarray(result.made.picture).tobytes() for result in results}) == 4
    assert not patches_on(flowers.unet)
