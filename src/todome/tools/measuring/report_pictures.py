"""The pictures in a report, beside the dense ones, as data URIs that keep the page small enough to be sent around."""

import math
from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from ...errors import invalid_value
from ..pictures import difference
from ..pipelines import Size
from .report_text import colour_of, title_of
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
        size, buffer = self.size(picture.size), BytesIO()
        smaller = picture if size == picture.size else picture.resize(size, Image.Resampling.LANCZOS)
        smaller.save(buffer, "WEBP", lossless=self.lossless, quality=QUALITY)
        return data_uri("image/webp", buffer.getvalue())


class ComparedPicture(NamedTuple):
    """A picture beside the dense one, each as a data URI."""

    prompt: str
    facts: Sequence[str]
    dense: str
    picture: str
    difference: str


class MethodPictures(NamedTuple):
    """The pictures of a method, the worst first."""

    title: str
    colour: str
    folder: str
    total: int  # pictures, of which these are some
    cases: Sequence[ComparedPicture]


def embedding_for(run: Evaluation, cases: int) -> Embedding:
    full = Embedding(1, lossless=False)
    pixels = [3 * min(cases, len(row.closeness.psnr)) * math.prod(full.size(row.size)) for row in run.rows]
    return Embedding(min(1, math.sqrt(MOST / max(1, sum(pixels)))), lossless=sum(pixels) <= EXACT)


def method_pictures(run: Evaluation, row: EvaluationRow, cases: int, embedding: Embedding) -> MethodPictures:
    close = row.closeness
    order = sorted(range(len(close.psnr)), key=lambda i: close.psnr[i])[:cases]
    folder = run.picture(row.size, row.method, 0).parent.relative_to(run.folder).as_posix()
    shown_cases = [compared_picture(run, row, i, embedding) for i in order]
    return MethodPictures(title_of(row.method), colour_of(row), folder, len(close.psnr), shown_cases)


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


def data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"
