"""What can be read off a photo reliably: the colour of its flowers, and whether it is a close-up or a field of them.

Both are told only where the pixels leave little doubt; a photo without a label is captioned by its kind alone.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

# The colours a kind is grown in. Others that a photo may show are its sky, its leaves or its vase.
COLOURS_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "daisy": ("white", "pink", "purple"),  # its yellow is the middle of a white one
    "dandelion": ("yellow", "white"),
    "rose": ("red", "pink", "white", "yellow", "orange"),
    "sunflower": ("yellow",),
    "tulip": ("red", "pink", "white", "yellow", "orange", "purple"),
}
SIDE = 132  # photos are looked at this small: petals remain, noise goes
LEAST_SHARE = 0.035  # of the picture, weighted to its middle, that a colour must cover
LEAST_LEAD = 1.6  # times the share of the runner-up

Mask = NDArray[np.bool_]


class Label(NamedTuple):
    colour: str | None
    view: str | None


def read_label(photo: Image.Image, kind: str) -> Label:
    masks = colour_masks(photo)
    if kind == "sunflower":  # the sun turns their yellow to orange
        masks["yellow"] |= masks["orange"]
    colour = dominant_colour(masks, COLOURS_OF_KIND[kind])
    shown = [masks[name] for name in COLOURS_OF_KIND[kind] if name == colour or (colour is None and name != "white")]
    view = view_of(np.logical_or.reduce(shown))
    clock = (kind, colour) == ("dandelion", "white")  # its seeds look like a field of flowers
    return Label(colour, None if clock and view == "field" else view)


def colour_masks(photo: Image.Image) -> dict[str, Mask]:
    """Where each colour is, by hue (degrees), saturation and value."""
    small = photo.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX)
    hue, s, v = np.moveaxis(np.asarray(small.convert("HSV"), dtype=np.float32) / 255, -1, 0)
    hue = hue * 360
    reddish = (hue < 16) | (hue > 335)
    return {
        "white": (s < 0.17) & (v > 0.72),
        "yellow": (hue >= 40) & (hue < 66) & (s > 0.42) & (v > 0.6),
        "orange": (hue >= 16) & (hue < 40) & (s > 0.6) & (v > 0.65),
        "red": reddish & (s > 0.65) & (v > 0.3),
        "pink": ((hue > 300) & (hue <= 335) & (s > 0.2) & (v > 0.5)) | (reddish & (s > 0.17) & (s < 0.5) & (v > 0.68)),
        "purple": (hue > 255) & (hue <= 300) & (s > 0.22) & (v > 0.25),
    }


def dominant_colour(masks: Mapping[str, Mask], candidates: Iterable[str]) -> str | None:
    """The candidate that clearly covers most of the middle; white only where the rim is not white as well (a sky)."""
    y, x = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j]
    middle = np.exp(-2 * (x**2 + y**2))
    rim = np.maximum(abs(x), abs(y)) > 0.85
    shares = {name: float((masks[name] * middle).sum() / middle.sum()) for name in candidates}
    if "white" in shares:
        shares["white"] = max(0.0, shares["white"] - float(masks["white"][rim].mean()))
    first, second, *_ = [*sorted(shares.values(), reverse=True), 0.0]
    clear = first > LEAST_SHARE and first > LEAST_LEAD * second
    return max(shares, key=shares.__getitem__) if clear else None


def view_of(flowers: Mask) -> str | None:
    """`close-up` where one flower fills the picture, `field` where many small ones are spread over it."""
    labelled: Any = ndimage.label(ndimage.binary_closing(flowers, iterations=3))
    blobs, count = labelled
    numbers = np.arange(1, count + 1)
    areas = ndimage.sum_labels(flowers, blobs, numbers) / flowers.size
    numbers, areas = numbers[areas > 0.002], areas[areas > 0.002]
    if not len(areas):
        return None
    if areas.max() > 0.2 and areas.max() > 0.85 * areas.sum():
        return "close-up"
    spread = np.std(ndimage.center_of_mass(flowers, blobs, numbers), axis=0).max() / SIDE
    return "field" if len(areas) >= 6 and areas.max() < 0.06 and spread > 0.2 else None
