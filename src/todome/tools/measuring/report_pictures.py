"""The pictures in a report, beside the dense ones, as data URIs that keep the page small enough to be sent around."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from ...errors import invalid_value
from ..pictures import difference, webp_uri
from ..pipelines import Size
from .runs import Evaluation, EvaluationRow

WIDEST = 768  # pixels of a picture in the page
EXACT, MOST = 6e6, 45e6  # pixels of all pictures that fit in 20 MB: without loss, and as WebP of this quality
QUALITY = 92


class Embedding(NamedTuple):
    """How pictures are put into the page, so that it stays small enough to be sent around."""

    scale: float
    lossless: bool

    def size(self, size: Size) -> Size:
        scale = self.scale * min(1, WIDEST / size[0])
        return round(size[0] * scale), round(size[1] * scale)

    def uri(self, picture: Image.Image) -> str:
        size = self.size(picture.size)
        smaller = picture if size == picture.size else picture.resize(size, Image.Resampling.LANCZOS)
        return webp_uri(smaller, QUALITY, lossless=self.lossless)


class ComparedPicture(NamedTuple):
    """A picture beside the dense one, each as a data URI."""

    prompt: str
    facts: Sequence[str]
    dense: str
    picture: str
    difference: str


def embedding_for(run: Evaluation, cases: int) -> Embedding:
    full = Embedding(1, lossless=False)
    pixels = [3 * min(cases, len(row.closeness.psnr)) * math.prod(full.size(row.size)) for row in run.rows]
    return Embedding(min(1, math.sqrt(MOST / max(1, sum(pixels)))), lossless=sum(pixels) <= EXACT)


def compared_pictures(run: Evaluation, row: EvaluationRow, cases: int, embedding: Embedding) -> list[ComparedPicture]:
    """The pictures of a method that are farthest from dense, the worst first."""
    psnr = row.closeness.psnr
    return [compared_picture(run, row, i, embedding) for i in sorted(range(len(psnr)), key=lambda i: psnr[i])[:cases]]


def compared_picture(run: Evaluation, row: EvaluationRow, i: int, embedding: Embedding) -> ComparedPicture:
    dense, picture = open_picture(run.picture(row.size, "dense", i)), open_picture(run.picture(row.size, row.method, i))
    facts = [f"{row.closeness.psnr[i]:.1f} dB", f"seed {run.plan.seed + i}"]
    if row.closeness.lpips:
        facts.insert(1, f"LPIPS {row.closeness.lpips[i]:.4f}")
    pictures = (dense, picture, difference(picture, dense))
    return ComparedPicture(run.plan.prompt(i), facts, *map(embedding.uri, pictures))


def open_picture(path: Path) -> Image.Image:
    try:
        with Image.open(path) as picture:
            return picture.convert("RGB")
    except OSError:
        allowed = "the PNG file that the evaluation drew"
        raise invalid_value(
            "picture", str(path), allowed, "It is missing or broken: evaluate again", FileNotFoundError
        ) from None
