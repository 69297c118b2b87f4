"""Files and folders are there whole or not at all, whoever else writes them; pictures and sheets among them."""

import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from todome.tools.files import UNFINISHED, atomic_folder, atomic_write
from todome.tools.pictures import difference, write_png
from todome.tools.sheets import MARGIN, Column, draw_sheet

KINDS = pytest.mark.parametrize("write", [atomic_write, atomic_folder])


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_the_place_of_another_one_and_a_folder_gets_its_own(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with atomic_write(tmp_path / "a.txt") as new:
        new.write_text("new")
        assert (tmp_path / "a.txt").read_text() == "old"
    assert (tmp_path / "a.txt").read_text() == "new"
    with atomic_folder(tmp_path / "b") as new:
        (new / "c").touch()
        assert not (tmp_path / "b").exists()
    assert (names_in(tmp_path), names_in(tmp_path / "b")) == (["a.txt", "b"], ["c"])


@KINDS
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_leaves_nothing_behind(tmp_path, write, error):
    with pytest.raises(error), write(tmp_path / "a"):
        raise error
    assert names_in(tmp_path) == []


@KINDS
def test_what_is_unfinished_is_known_as_such(tmp_path, write):
    with write(tmp_path / "a") as new:
        new.touch()
        assert names_in(tmp_path) == [path.name for path in tmp_path.glob(UNFINISHED)]
        assert new.suffix == ""


def test_permissions_are_those_of_any_new_file_or_folder(tmp_path):
    with atomic_write(tmp_path / "a") as new:
        new.touch()
    with atomic_folder(tmp_path / "b"):
        pass
    (tmp_path / "usual").touch()
    (tmp_path / "folder").mkdir()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert (tmp_path / "b").stat().st_mode == (tmp_path / "folder").stat().st_mode


def test_a_long_name(tmp_path):
    path = tmp_path / ("a" * 255)
    with atomic_write(path) as new:
        new.write_text("whole")
    assert path.read_text() == "whole"


def test_two_threads_write_one_file(tmp_path):
    path, both, failed = tmp_path / "a", threading.Barrier(2), []

    def write(text: str) -> None:
        try:
            with atomic_write(path) as new:
                both.wait()
                new.write_text(text)
                both.wait()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(text * 999,)) for text in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert path.read_text() in ("a" * 999, "b" * 999)
    assert names_in(tmp_path) == ["a"]


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
