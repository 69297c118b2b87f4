"""Labels, captions and cuts of drawn flowers: what training begins with."""

import prepare
import pytest
from models import make_tokenizer
from photos import SIDE, cut, load_photos
from prepared import read_entries, read_prompts
from runs import COLOUR, EACH
from words import KINDS, vocabulary


def test_labels_say_what_was_drawn(ready, photos):
    entries = read_entries(ready)
    assert len(entries) == EACH * len(KINDS)
    assert {(entry.kind, entry.colour, entry.view) for entry in entries} == {
        (kind, colour, "close-up") for kind, colour in COLOUR.items()
    }
    assert all((photos / entry.file).is_file() for entry in entries)


def test_prompts_are_captions_of_their_label(ready):
    prompts, tokenizer = read_prompts(ready), make_tokenizer(vocabulary())
    assert prompts.shape == (len(KINDS), prepare.CAPTIONS, prepare.LENGTH)
    for entry in read_entries(ready):
        said = tokenizer.batch_decode(prompts[entry.label].tolist(), skip_special_tokens=True)
        assert sum(entry.kind in text or KINDS[entry.kind][1] in text for text in said) > 0.9 * len(said)


def test_a_run_that_was_not_prepared_is_refused(tmp_path):
    with pytest.raises(SystemExit) as error:
        read_entries(tmp_path)
    assert str(error.value) == f"{tmp_path / 'labels.json'} is missing. Run prepare.py with --run {tmp_path} first."


@pytest.mark.parametrize(("height", "width"), [(32, 32), (64, 96), (288, 160)])
@pytest.mark.parametrize("zoom", [1.0, 1.7])
def test_cuts_have_the_size_and_range_asked_for(photos, height, width, zoom):
    pictures = load_photos(sorted(photos.glob("*/0.png"))[:2])
    assert pictures.shape == (2, 3, SIDE, SIDE)
    parts = cut(pictures, height, width, zoom)
    assert parts.shape == (2, 3, height, width)
    assert parts.abs().max() <= 1
