"""Pictures on disk: PNG files that carry texts, written whole or not at all; and sheets of pictures side by side."""

import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageChops, ImageDraw, ImageFont, PngImagePlugin

from ..errors import invalid_value
from .files import atomic_write

MARGIN, GAP, COLUMN = 48, 28, 256  # pixels of a sheet; narrower pictures are enlarged to fill a column
TITLE, NAME, TEXT = 30, 22, 17  # sizes of type
INK, GREY = "#1a1a1a", "#6b6b6b"
FORMATS = {  # by the ending of a file: a name for it, and what speaks for it
    ".png": ("picture.png", "the format that holds the settings"),
    ".html": ("report.html", "which a browser opens"),
}


def check_out(path: Path, *, ending: str = ".png", force: bool = False) -> None:
    """Refuses a file that could not be written or would replace another one: to be asked before any work is done."""
    folder, name = path.parent, str(path)
    if path.suffix.lower() != ending:
        example, reason = FORMATS[ending]
        remedy = f"Use {path.with_suffix(ending) if path.name else example}"
        raise invalid_value("out", name, f"a name that ends in {ending}, {reason}", remedy)
    if not folder.is_dir():
        raise invalid_value(
            "out", name, "a file in a folder that exists", f"Make the folder {folder} first", FileNotFoundError
        )
    if path.is_dir():
        raise invalid_value("out", name, "a file, and this is a folder", "Choose another name", IsADirectoryError)
    if not os.access(folder, os.W_OK):
        remedy = f"Choose another folder than {folder}"
        raise invalid_value("out", name, "a file in a folder you may write to", remedy, PermissionError)
    if path.exists() and not force:
        remedy = "Choose another name, or overwrite it with --force"
        raise invalid_value("out", name, "a file that does not exist yet", remedy, FileExistsError)


def write_png(
    picture: Image.Image, path: Path, texts: Mapping[str, str], *, force: bool = False, compress_level: int = 6
) -> None:
    check_out(path, force=force)
    info = PngImagePlugin.PngInfo()
    for key, text in texts.items():
        info.add_text(key, text)
    with atomic_write(path) as beside:
        picture.save(beside, "PNG", pnginfo=info, compress_level=compress_level)


def read_texts(path: Path) -> dict[str, str]:
    """The texts in a PNG file; none where it has none."""
    with Image.open(path) as picture:
        picture.load()
        return {key: str(text) for key, text in getattr(picture, "text", {}).items()}


def webp_uri(picture: Image.Image, quality: int) -> str:
    """A picture inside a page."""
    buffer = BytesIO()
    picture.save(buffer, "WEBP", quality=quality)
    return f"data:image/webp;base64,{b64encode(buffer.getvalue()).decode()}"


class Column(NamedTuple):
    """What a sheet shows of one picture: its name, a few lines on it, and a second picture below."""

    picture: Image.Image
    name: str
    lines: Sequence[str] = ()
    below: Image.Image | None = None


def difference(picture: Image.Image, reference: Image.Image, times: int) -> Image.Image:
    """How far apart two pictures are, pixel by pixel, made `times` as bright."""
    brighter = [min(255, value * times) for value in range(256)]
    return ImageChops.difference(picture, reference).point(brighter * len(picture.getbands()))


def sheet(title: str, subtitle: str, columns: Sequence[Column], note: str) -> Image.Image:
    """Columns side by side on white. The note stands below the first column, which has nothing else there."""
    shown = [column._replace(picture=enlarged(column.picture)) for column in columns]
    width, height = shown[0].picture.size
    top = MARGIN + TITLE + TEXT + 2 * GAP
    below = top + height + GAP // 2 + NAME + (len(columns[-1].lines) + 1) * (TEXT + 8) + GAP
    whole = (2 * MARGIN + len(columns) * (width + GAP) - GAP, below + height + MARGIN)
    page = Image.new("RGB", whole, "white")
    draw = ImageDraw.Draw(page)
    write(draw, (MARGIN, MARGIN), title, TITLE, INK, whole[0] - 2 * MARGIN)
    write(draw, (MARGIN, MARGIN + TITLE + GAP // 2), subtitle, TEXT, GREY, whole[0] - 2 * MARGIN)
    for i, column in enumerate(shown):
        left = MARGIN + i * (width + GAP)
        page.paste(column.picture, (left, top))
        caption(draw, (left, top + height + GAP // 2), column, width)
        if column.below is not None:
            page.paste(enlarged(column.below), (left, below))
    draw.multiline_text((MARGIN, below), wrapped(note, width), GREY, type_of(TEXT), spacing=8)
    return page


def caption(draw: ImageDraw.ImageDraw, at: tuple[int, int], column: Column, width: int) -> None:
    left, top = at
    write(draw, at, column.name, NAME, INK, width)
    for i, line in enumerate(column.lines):
        write(draw, (left, top + NAME + 12 + i * (TEXT + 8)), line, TEXT, GREY, width)


def write(draw: ImageDraw.ImageDraw, at: tuple[int, int], text: str, size: int, colour: str, width: int) -> None:
    """One line, cut off where it would be wider than it may be."""
    text, font = " ".join(text.split()), type_of(size)
    if font.getlength(text) > width:
        while text and font.getlength(f"{text}…") > width:
            text = text[:-1]
        text = f"{text.rstrip()}…"
    draw.text(at, text, colour, font)


def wrapped(text: str, width: int) -> str:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if type_of(TEXT).getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(lines)


def type_of(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def enlarged(picture: Image.Image) -> Image.Image:
    """A picture that fills a column, each of its pixels a square."""
    times = max(1, -(-COLUMN // picture.width))
    return picture.resize((picture.width * times, picture.height * times), Image.Resampling.NEAREST)
