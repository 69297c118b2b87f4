"""The captions and the labels they are made of: true, varied, and silent where a photo leaves doubt."""

import itertools
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from labels import COLOURS_OF_KIND, Label, read_label
from photos import SIDE, list_photos, load_photos, open_photo
from PIL import Image, ImageDraw
from words import COLOURS, FILLERS, KINDS, VIEWS, caption, vocabulary

GREEN, RED, YELLOW = (40, 120, 40), (200, 20, 30), (250, 220, 20)
KIND_OF_WORD = {form: kind for kind, forms in KINDS.items() for form in forms}
VIEW_WORDS = {word for phrases in VIEWS.values() for phrase in phrases for word in re.findall(r"\w+", phrase)}
VIEW_WORDS -= {"a", "of", "in"}

views = st.sampled_from([None, *VIEWS])
labelled = st.sampled_from([(kind, colour) for kind, colours in COLOURS_OF_KIND.items() for colour in (None, *colours)])
seeds = st.integers(0, 2**32)


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text)


@given(labelled, views, seeds)
def test_a_caption_is_plain_text_that_says_nothing_false(labelled, view, seed):
    kind, colour = labelled
    text = caption(kind, Label(colour, view), random.Random(seed))
    words = set(words_of(text))
    assert {KIND_OF_WORD[word] for word in words & KIND_OF_WORD.keys()} <= {kind}
    assert words & {*KINDS[kind], "flower", "flowers"}
    assert words & {*COLOURS} <= {colour}
    if view is None:
        assert not words & VIEW_WORDS
    assert re.fullmatch(r"[a-z]+(( |-|, )[a-z]+)*", text)
    assert caption(kind, Label(colour, view), random.Random(seed)) == text


def test_captions_tell_most_of_what_they_know_and_meaningless_words():
    rng = random.Random(0)
    said = [words_of(caption("tulip", Label("red", "close-up"), rng)) for _ in range(300)]
    assert 0.7 < sum("red" in words for words in said) / len(said) < 0.9
    assert 0.9 < sum("tulip" in words or "tulips" in words for words in said) / len(said) < 1
    every = {word for words in said for word in words}
    assert len(every & {*FILLERS}) > 20
    assert len(every - {*vocabulary()}) > 20
    assert not {*FILLERS} & {*COLOURS, *KIND_OF_WORD, *VIEW_WORDS}


def discs(background, colour, radius: int, places) -> Image.Image:
    photo = Image.new("RGB", (SIDE, SIDE), background)
    draw = ImageDraw.Draw(photo)
    for x, y in places:
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
    return photo


SPREAD = [*itertools.product(range(30, SIDE, 50), repeat=2)]
MIDDLE = [(SIDE // 2, SIDE // 2)]


@pytest.mark.parametrize(
    ("colour", "radius", "places", "kind", "label"),
    [
        (RED, 90, MIDDLE, "tulip", Label("red", "close-up")),
        (RED, 90, MIDDLE, "sunflower", Label(None, None)),  # a kind has only colours it is grown in
        (YELLOW, 10, SPREAD, "dandelion", Label("yellow", "field")),
        ("white", 10, SPREAD, "dandelion", Label("white", None)),  # its seeds are no field
        (GREEN, 90, MIDDLE, "tulip", Label(None, None)),
    ],
)
def test_what_a_photo_shows(colour, radius: int, places, kind: str, label: Label):
    assert read_label(discs(GREEN, colour, radius, places), kind) == label


def test_two_colours_leave_doubt():
    photo = discs(GREEN, RED, 60, [(70, 132)])
    photo.paste(discs(GREEN, YELLOW, 60, [(62, 132)]).crop((0, 0, 132, SIDE)), (132, 0))
    assert read_label(photo, "tulip").colour is None


def save_photo(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    discs(GREEN, RED, 20, MIDDLE).resize((60, 40)).save(path)
    return path


def test_photos_are_found_by_the_name_of_their_folder(tmp_path):
    tulip, rose = save_photo(tmp_path / "Tulips" / "b.JPG"), save_photo(tmp_path / "rose" / "a.png")
    save_photo(tmp_path / "car" / "c.png")
    (tmp_path / "rose" / "readme.txt").write_text("roses")
    assert list_photos(tmp_path) == [(tulip, "tulip"), (rose, "rose")]
    assert open_photo(rose).size == (SIDE, SIDE)
    assert load_photos([tulip, rose]).shape == (2, 3, SIDE, SIDE)


@pytest.mark.parametrize("folder", ["empty", "missing"])
def test_a_folder_without_photos_is_refused(tmp_path, folder):
    (tmp_path / "empty" / "car").mkdir(parents=True)
    with pytest.raises(SystemExit) as error:
        list_photos(tmp_path / folder)
    assert str(error.value).startswith(f"{tmp_path / folder} holds no photos. Expected: ")
