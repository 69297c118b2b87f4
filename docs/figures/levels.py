"""Draws docs/figures/levels.svg: the resolutions of SD 1.5 and SDXL, and which level each of them is.

python docs/figures/levels.py
"""

from collections import Counter

import torch
from canvas import figure, save, square, title, words

from todome.hosts import find_layers
from todome.tools.measuring.subjects import ARCHITECTURES, PIXELS, random_unet

PIXELS_A_SIDE = 1024  # of the picture
MODELS = {"sd15": "SD 1.5", "sdxl": "SDXL"}
UNIT, WIDE, TOP = 0.75, 400, 66  # pixels a token, a column, above the first row


def stages(name: str) -> list[tuple[int, int, int, int | None]]:
    """Each resolution: tokens on a side, channels, layers with self-attention, its level."""
    unet = random_unet(ARCHITECTURES[name], torch.device("meta"), torch.float16)
    layers = find_layers(unet)
    levels, counts = {layer.scale: layer.level for layer in layers}, Counter(layer.scale for layer in layers)
    widths = enumerate(unet.config.block_out_channels)
    return [(PIXELS_A_SIDE // PIXELS >> i, width, counts[i], levels.get(i)) for i, width in widths]


def column(left: float, name: str) -> list[str]:
    shapes, top = [title(left, 30, f"{MODELS[name]}, {PIXELS_A_SIDE} x {PIXELS_A_SIDE} px", "start")], TOP - 18.0
    for side, channels, layers, level in stages(name):
        size = side * UNIT
        look = ("var(--kept)", "none", "") if level == 1 else ("var(--faint)", "var(--line)", "")
        look = look if level else ("none", "var(--line)", 'stroke-dasharray="4 3"')
        shapes.append(square(left, top, size, *look))
        height = max(size, 36)
        x, y = left + 112, top + min(size, height) / 2 + 2
        count = f"{layers} layer{'s' * (layers != 1)} of " if level else ""
        keys = f"level {level}: {side} x {side} = {side * side:,} keys" if level else "no self-attention"
        shapes += [title(x, y - 4, keys, "start"), words(x, y + 13, f"{count}{channels} channels", "start")]
        top += height + 14
    return shapes


def drawing() -> str:
    shapes = [shape for i, name in enumerate(MODELS) for shape in column(24 + i * WIDE, name)]
    alt = "Levels count from the finest resolution with self-attention, which is the second one of SDXL"
    return figure(len(MODELS) * WIDE + 24, 330, alt, shapes)


if __name__ == "__main__":
    save(__file__, drawing())
