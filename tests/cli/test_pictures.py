"""Files are written whole or not at all, and sheets hold what they are given."""

import numpy as np
import pytest
from PIL import Image

from todome.tools.pictures import difference, write_png
from todome.tools.sheets import MARGIN, Column, draw_sheet

GREY = Image.new("RGB", (8, 8), (100, 100, 100))


def test_a_file_that_came_up_meanwhile_is_kept(tmp_path):
    path = tmp_path / "a.png"
    path.write_text("a user's own")
    with pytest.raises(FileExistsError):
        write_png(GREY, path, {})
    assert path.read_text() == "a user's own"


def test_differences_are_made_brighter():
    other = Image.new("RGB", (8, 8), (101, 95, 200))
    assert difference(other, GREY, 8).getpixel((3, 3)) == (8, 40, 255)


def test_a_sheet_is_white_around_its_pictures():
    colours = ("red", "green", "blue")
    columns = [Column(Image.new("RGB", (64, 64), colour), colour, ["one", "two"]) for colour in colours]
    page = draw_sheet("a title " * 99, "below it", [*columns, columns[0]._replace(below=GREY)], "a note " * 9)
    pixels = np.asarray(page)
    for edge in (pixels[:MARGIN], pixels[-MARGIN:], pixels[:, :MARGIN], pixels[:, -MARGIN:]):
        assert (edge == 255).all()
    counts = {colour: (pixels == np.array(Image.new("RGB", (1, 1), colour))[0, 0]).all(-1).sum() for colour in colours}
    assert counts == {"red": 2 * 256 * 256, "green": 256 * 256, "blue": 256 * 256}
    assert (pixels == 100).all(-1).sum() >= 256 * 256
