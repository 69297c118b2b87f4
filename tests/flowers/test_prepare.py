"""Labels, captions and cuts of drawn flowers, and the probe that finds photos of something else."""

import prepare
import pytest
import torch
from models import make_tokenizer
from photos import cut, load_photos
from prepared import read_entries, read_prompts
from probe import cross_validated
from runs import COLOUR, EACH
from torch import Tensor
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


@pytest.mark.parametrize(("height", "width", "zoom"), [(32, 32, 1.0), (64, 96, 1.7), (288, 160, 1.7)])
def test_cuts_have_the_size_and_range_asked_for(photos, height, width, zoom):
    parts = cut(load_photos(sorted(photos.glob("*/0.png"))[:2]), height, width, zoom)
    assert parts.shape == (2, 3, height, width)
    assert parts.abs().max() <= 1


def separable(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Features of five kinds, each around a place of its own."""
    kinds = torch.arange(count) % 5
    noise = torch.randn(count, 16, generator=torch.Generator().manual_seed(seed))
    return 3 * torch.eye(5, 16)[kinds] + 0.3 * noise, kinds


def test_a_photo_of_something_else_is_found():
    features, kinds = separable(100, seed=0)
    assert cross_validated(features, kinds).min() > 0.5
    kinds[7] = 0  # it is a 2
    own = cross_validated(features, kinds)
    assert own[7] < prepare.LEAST_LIKELY
    assert own[torch.arange(100) != 7].min() > 0.5
    kinds[kinds == 4] = 3
    kinds[4] = 4  # the only one of its kind
    assert cross_validated(features, kinds)[4] < prepare.LEAST_LIKELY
