"""Draws hero.jpg, the picture of the README: three motifs, one half of each dense, the other half reduced.

    python docs/figures/hero.py

Both halves come from the same noise. The times are those of the machine that draws it; the lines printed say how
close the halves are.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from todome import Downsample
from todome.tools.demo import Result
from todome.tools.generate import Generated, make_picture, recommended_settings
from todome.tools.pipelines import EMBEDDED, open_pipeline, weights_of
from todome.tools.sheets import GREY, INK, NAME, TEXT, draw_line

SIDE, GAP, BELOW = 512, 12, 84  # pixels; the last for the captions
SETTINGS = replace(recommended_settings(), size=(SIDE, SIDE), reduction=None)
REDUCTION = Downsample(2)
MOTIFS = {"a field of red tulips": 0, "pink roses, close-up": 0, "white daisies, close-up": 0}  # and their seeds


def drawn_twice(pipe: Any, prompt: str, seed: int) -> tuple[Generated, Generated]:
    """Dense and reduced."""
    settings = replace(SETTINGS, prompt=prompt, seed=seed)
    return make_picture(settings, pipe), make_picture(replace(settings, reduction=REDUCTION), pipe)


def halves(dense: Generated, reduced: Generated) -> Image.Image:
    """The left half of one picture and the right half of the other, a line between them, a caption below each."""
    middle, result = SIDE // 2, Result("todome", reduced, dense)
    page = Image.new("RGB", (SIDE, SIDE + BELOW), "white")
    page.paste(dense.picture, (0, 0))
    page.paste(reduced.picture.crop((middle, 0, SIDE, SIDE)), (middle, 0))
    draw = ImageDraw.Draw(page)
    draw.line([(middle, 0), (middle, SIDE)], "white", 2)
    captions = {
        0: (f"full: {dense.seconds:.0f} s", "every key, on a CPU"),
        middle: (f"todome: {reduced.seconds:.0f} s", f"1 key in 4, {result.closeness}"),
    }
    for left, (name, line) in captions.items():
        draw_line(draw, (left + 8, SIDE + 16), name, NAME, INK, middle - 16)
        draw_line(draw, (left + 8, SIDE + 16 + NAME + 12), line, TEXT, GREY, middle - 16)
    return page


def row(pages: Sequence[Image.Image]) -> Image.Image:
    sheet = Image.new("RGB", (len(pages) * (SIDE + GAP) - GAP, SIDE + BELOW), "white")
    for i, page in enumerate(pages):
        sheet.paste(page, (i * (SIDE + GAP), 0))
    return sheet


def main() -> None:
    pipe, pages = open_pipeline(), []
    make_picture(replace(SETTINGS, prompt="", steps=1), pipe)  # to warm up
    for prompt, seed in MOTIFS.items():
        dense, reduced = drawn_twice(pipe, prompt, seed)
        result = Result("todome", reduced, dense)
        print(f"{prompt}: {dense.seconds:.1f} s, {reduced.seconds:.1f} s: {result.speedup:.2f}x, {result.closeness}")
        pages.append(halves(dense, reduced))
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("hero.jpg")
    row(pages).save(out, quality=92, comment=json.dumps(weights_of(EMBEDDED)))


if __name__ == "__main__":
    main()
