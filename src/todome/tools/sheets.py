"""Sheets: pictures side by side on white, with captions, as one picture."""

from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

MARGIN, GAP, COLUMN = 48, 28, 256  # pixels of a sheet; narrower pictures are enlarged to fill a column
TITLE, NAME, TEXT = 30, 22, 17  # sizes of type
INK, GREY = "#1a1a1a", "#6b6b6b"


class Column(NamedTuple):
    """One picture on a sheet: its name, a few lines on it, and a second picture below."""

    picture: Image.Image
    name: str
    lines: Sequence[str] = ()
    below: Image.Image | None = None


def draw_sheet(title: str, subtitle: str, columns: Sequence[Column], note: str) -> Image.Image:
    """Columns side by side on white. The note stands below the first column, which has nothing else there."""
    columns = [column._replace(picture=enlarge(column.picture)) for column in columns]
    width, height = columns[0].picture.size
    top = MARGIN + TITLE + TEXT + 2 * GAP
    below = top + height + GAP // 2 + NAME + (len(columns[-1].lines) + 1) * (TEXT + 8) + GAP
    size = (2 * MARGIN + len(columns) * (width + GAP) - GAP, below + height + MARGIN)
    page = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(page)
    draw_line(draw, (MARGIN, MARGIN), title, TITLE, INK, size[0] - 2 * MARGIN)
    draw_line(draw, (MARGIN, MARGIN + TITLE + GAP // 2), subtitle, TEXT, GREY, size[0] - 2 * MARGIN)
    for i, column in enumerate(columns):
        left = MARGIN + i * (width + GAP)
        page.paste(column.picture, (left, top))
        draw_caption(draw, (left, top + height + GAP // 2), column, width)
        if column.below is not None:
            page.paste(enlarge(column.below), (left, below))
    draw.multiline_text((MARGIN, below), wrap(note, width), GREY, font_of(TEXT), spacing=8)
    return page


def draw_caption(draw: ImageDraw.ImageDraw, at: tuple[int, int], column: Column, width: int) -> None:
    left, top = at
    draw_line(draw, at, column.name, NAME, INK, width)
    for i, line in enumerate(column.lines):
        draw_line(draw, (left, top + NAME + 12 + i * (TEXT + 8)), line, TEXT, GREY, width)


def draw_line(draw: ImageDraw.ImageDraw, at: tuple[int, int], text: str, size: int, colour: str, width: int) -> None:
    """One line of text, cut off where it would be wider than it may be."""
    text, font = " ".join(text.split()), font_of(size)
    if font.getlength(text) > width:
        while text and font.getlength(f"{text}…") > width:
            text = text[:-1]
        text = f"{text.rstrip()}…"
    draw.text(at, text, colour, font)


def wrap(text: str, width: int) -> str:
    """Text in lines that are no wider than so many pixels."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font_of(TEXT).getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(lines)


def font_of(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def enlarge(picture: Image.Image) -> Image.Image:
    """A picture that fills a column, each of its pixels a square."""
    times = max(1, -(-COLUMN // picture.width))
    return picture.resize((picture.width * times, picture.height * times), Image.Resampling.NEAREST)
