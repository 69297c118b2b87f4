"""Pictures and captions as people keep them; what is wrong with them is told by name."""

import json

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from todome.tools.training.dataset import fingerprints, first_change, open_picture, read_examples

ENDINGS = ".bmp, .jpeg, .jpg, .png, .tif, .tiff, .webp"


def test_texts_beside_the_pictures(photos):
    (photos / "notes.txt").write_text("no picture has this name")
    (photos / ".hidden.png").write_text("no picture")
    found = read_examples(photos)
    assert [(example.path.name, example.caption, example.size) for example in found] == [
        ("pink.png", "a pink tulip", (60, 120)),
        ("red.png", "a red tulip", (96, 96)),
        ("white.png", "a white tulip", (72, 72)),
        ("yellow.png", "a yellow tulip", (160, 96)),
    ]


def test_a_list_of_pictures(photos):
    (photos / "more").mkdir()
    (photos / "red.png").rename(photos / "more/red.png")
    lines = [{"file_name": "pink.png", "text": "rosa"}, {"file_name": "more/red.png", "text": "rot"}]
    (photos / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert [(e.path, e.caption) for e in read_examples(photos)] == [
        (photos / "more/red.png", "rot"),
        (photos / "pink.png", "rosa"),
    ]


def test_one_caption_for_pictures_without(photos):
    (photos / "red.txt").unlink()
    (photos / "pink.txt").write_text("")
    captions = {example.path.stem: example.caption for example in read_examples(photos, "a tulip")}
    assert captions == {"pink": "", "red": "a tulip", "white": "a white tulip", "yellow": "a yellow tulip"}


def test_a_picture_that_lies_on_its_side_is_set_upright(tmp_path):
    picture = Image.new("RGB", (40, 20), "blue")
    picture.paste("red", (0, 0, 20, 20))
    picture.save(tmp_path / "a.jpg", exif=exif(6), quality=95)  # what was left is up
    (tmp_path / "a.txt").write_text("a")
    (example,) = read_examples(tmp_path)
    upright = open_picture(example.path)
    assert example.size == upright.size == (20, 40)
    assert upright.getpixel((10, 5))[0] > 200  # pyright: ignore
    assert upright.getpixel((10, 35))[2] > 200  # pyright: ignore


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def test_what_is_transparent_is_white(tmp_path):
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    Image.new("P", (8, 8)).save(tmp_path / "palette.png", transparency=0)
    Image.new("L", (8, 8), 7).save(tmp_path / "grey.png", pnginfo=PngInfo())
    colours = {path.stem: open_picture(path).getpixel((4, 4)) for path in tmp_path.iterdir()}
    assert colours == {"clear": (255, 255, 255), "palette": (255, 255, 255), "grey": (7, 7, 7)}


def test_no_folder(tmp_path, says):
    text = f"data='{tmp_path / 'no'}' cannot be used. Allowed: a folder of pictures. There is none of that name."
    with says(FileNotFoundError, text):
        read_examples(tmp_path / "no")


def test_an_empty_folder(tmp_path, says):
    (tmp_path / "a.txt").write_text("a tulip")
    with says(
        ValueError,
        f"data='{tmp_path}' cannot be used. Allowed: a folder with pictures ({ENDINGS}). This one has none.",
    ):
        read_examples(tmp_path)


def test_no_captions(photos, says):
    for name in ("red.txt", "white.txt"):
        (photos / name).unlink()
    allowed = "Allowed: pictures with a caption each, in NAME.txt beside NAME.png or in one metadata.jsonl."
    remedy = "2 of 4 have none, red.png first: write them, or give one for all as caption."
    with says(ValueError, f"data='{photos}' cannot be used. {allowed} {remedy}"):
        read_examples(photos)


@pytest.mark.parametrize("line", ["{", "[]", "{}", "7", '{"file": "red.png"}', '{"file_name": 7}', ""])
def test_a_line_that_is_no_entry(photos, says, line):
    (photos / "metadata.jsonl").write_text(f'{{"file_name": "red.png", "text": "a"}}\n{line}\n{{}}')
    allowed = 'Allowed: {"file_name": "a.png", "text": "a tulip"} on each line. Correct this line or remove it.'
    with says(ValueError, f"data='{photos / 'metadata.jsonl'}:2' cannot be used. {allowed}"):
        read_examples(photos)


def test_an_entry_without_its_picture(photos, says):
    (photos / "metadata.jsonl").write_text('{"file_name": "blue.png", "text": "a"}')
    text = f"data='{photos / 'metadata.jsonl'}:1' cannot be used. Allowed: pictures that are there. blue.png is not."
    with says(ValueError, text):
        read_examples(photos)


def test_a_caption_in_another_encoding(photos, says):
    (photos / "red.txt").write_bytes("Blüte".encode("latin-1"))
    with says(ValueError, f"data='{photos / 'red.txt'}' cannot be used. Allowed: texts in UTF-8. Save it as such."):
        read_examples(photos)


@pytest.mark.parametrize("reader", [read_examples, lambda folder: open_picture(folder / "red.png")])
def test_a_picture_that_is_none(photos, says, reader):
    (photos / "red.png").write_text("no picture")
    allowed = "Allowed: pictures that can be opened. Repair it or remove it."
    with says(ValueError, f"data='{photos / 'red.png'}' cannot be used. {allowed}"):
        reader(photos)


def test_half_a_picture(photos, says):
    whole = (photos / "red.png").read_bytes()
    (photos / "red.png").write_bytes(whole[: len(whole) // 2])
    allowed = "Allowed: pictures that can be opened. Repair it or remove it."
    with says(ValueError, f"data='{photos / 'red.png'}' cannot be used. {allowed}"):
        open_picture(photos / "red.png")


def test_what_has_changed(photos):
    before = fingerprints(read_examples(photos), photos)
    assert first_change(before, fingerprints(read_examples(photos), photos)) is None
    (photos / "white.txt").write_text("another caption")
    assert first_change(before, fingerprints(read_examples(photos), photos)) == "white.png has changed"
    Image.new("RGB", (60, 120), "blue").save(photos / "pink.png")
    assert first_change(before, fingerprints(read_examples(photos), photos)) == "pink.png has changed"
    assert first_change({"a": "1"}, {"a": "1", "b": "1"}) == "b is new"
    assert first_change({"a": "1", "b": "1"}, {"b": "1"}) == "a is gone"
