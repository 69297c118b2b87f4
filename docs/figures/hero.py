"""Draws hero.jpg, the picture of the README: one half dense, the other half reduced, from the same noise.

    python docs/figures/hero.py

The times are those of the machine that draws it; the last line printed says how close the two are.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageDraw

from todome import Downsample
from todome.tools.demo import Result
from todome.tools.generate import Generated, make_picture, recommended_settings
from todome.tools.pipelines import EMBEDDED, format_size, open_pipeline, weights_of
from todome.tools.sheets import GREY, INK, NAME, TEXT, draw_line

SETTINGS = replace(recommended_settings(), prompt="a field of red tulips", size=(640, 320), reduction=None)
REDUCED = replace(SETTINGS, reduction=Downsample(3))
BELOW = 84  # pixels, for the captions


def halves(dense: Generated, reduced: Generated) -> Image.Image:
    """The left half of one picture and the right half of the other, a line between them, a caption below each."""
    width, height = dense.picture.size
    middle, result = width // 2, Result("todome", reduced, dense)
    page = Image.new("RGB", (width, height + BELOW), "white")
    page.paste(dense.picture, (0, 0))
    page.paste(reduced.picture.crop((middle, 0, width, height)), (middle, 0))
    draw = ImageDraw.Draw(page)
    draw.line([(middle, 0), (middle, height)], "white", 2)
    captions = {
        0: (f"dense: {dense.seconds:.0f} s", f"every key, {format_size(dense.picture.size)} pixels, on a CPU"),
        middle: (f"todome: {reduced.seconds:.0f} s", f"1 key in 9, {result.closeness} from dense"),
    }
    for left, (name, line) in captions.items():
        draw_line(draw, (left + 8, height + 16), name, NAME, INK, middle - 16)
        draw_line(draw, (left + 8, height + 16 + NAME + 12), line, TEXT, GREY, middle - 16)
    return page


def main() -> None:
    pipe = open_pipeline()
    make_picture(replace(SETTINGS, steps=1), pipe)  # to warm up
    dense, reduced = make_picture(SETTINGS, pipe), make_picture(REDUCED, pipe)
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("hero.jpg")
    halves(dense, reduced).save(out, quality=92, comment=json.dumps(weights_of(EMBEDDED)))
    result = Result("todome", reduced, dense)
    print(f"dense {dense.seconds:.1f} s, todome {reduced.seconds:.1f} s: {result.speedup:.2f}x, {result.closeness}")


if __name__ == "__main__":
    main()
