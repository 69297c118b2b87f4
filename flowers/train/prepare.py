"""Read off the photos what their captions will say, and leave out those that show something else.

    python prepare.py PHOTOS --run run [--inception inception.safetensors]

PHOTOS has one folder per kind. Writes run/labels.json (a label per photo that is kept) and run/prompts.safetensors
(many captions of each label, as tokens). With Inception's weights, a photo whose kind a cross-validated linear probe
finds unlikely is left out: the set has cars, brides and street scenes among its roses.
"""

import argparse
import random
from pathlib import Path

import torch
from checkpoints import write_weights
from labels import Label, read_label
from models import make_tokenizer
from photos import list_photos, load_photos, open_photo
from prepared import Entry, write_entries
from probe import cross_validated, features_of
from safetensors.torch import load_file
from tqdm import tqdm
from words import KINDS, caption, vocabulary

from todome.tools.metrics import Inception

LEAST_LIKELY = 0.1  # a photo stays if the probe gives its kind at least this much
CAPTIONS = 240  # ways to say each label
LENGTH = 40  # tokens of the longest caption, start and end included


def tokenised(label: tuple[str, Label], tokenizer, rng: random.Random) -> list[list[int]]:
    """CAPTIONS ways to say a label, padded with the end token."""
    rows = []
    while len(rows) < CAPTIONS:
        tokens = tokenizer(caption(*label, rng)).input_ids
        if len(tokens) <= LENGTH:
            rows.append(tokens + [tokenizer.eos_token_id] * (LENGTH - len(tokens)))
    return rows


def likelihoods(found: list[tuple[Path, str]], run: Path, weights: Path, device: str) -> torch.Tensor:
    """How likely each photo shows its kind, (N,). The features are kept for `evaluate`, and for a second time."""
    kinds = torch.tensor([list(KINDS).index(kind) for _, kind in found])
    path = run / "features.safetensors"
    known = load_file(path) if path.exists() else None
    if known is None or not known["kinds"].equal(kinds):
        middles = load_photos([photo for photo, _ in found])[:, :, 4:260, 4:260]
        known = {"features": features_of(middles, Inception.load(weights).to(device)), "kinds": kinds}
        write_weights(run, "features", known)
    return cross_validated(known["features"], kinds)


def write_labels(run: Path, photos: Path, kept: list[tuple[Path, str]]) -> list[tuple[str, Label]]:
    """A label for each photo; the distinct ones are returned."""
    labels = [(kind, read_label(open_photo(path), kind)) for path, kind in tqdm(kept, "labels", mininterval=5)]
    distinct = sorted(set(labels), key=str)
    entries = [
        Entry(str(path.relative_to(photos)), kind, *label, distinct.index((kind, label)))
        for (path, _), (kind, label) in zip(kept, labels, strict=True)
    ]
    write_entries(run, entries)
    return distinct


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--run", type=Path, default=Path("run"))
    parser.add_argument("--inception", type=Path, help="weights of the FID network")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    options.run.mkdir(parents=True, exist_ok=True)

    kept = found = list_photos(options.photos)
    if options.inception:
        likely = likelihoods(found, options.run, options.inception, options.device)
        kept = [pair for pair, probability in zip(found, likely, strict=True) if probability >= LEAST_LIKELY]
    distinct = write_labels(options.run, options.photos, kept)
    tokenizer, rng = make_tokenizer(vocabulary()), random.Random(0)
    prompts = torch.tensor([tokenised(label, tokenizer, rng) for label in distinct], dtype=torch.int16)
    write_weights(options.run, "prompts", {"prompts": prompts})  # (labels, CAPTIONS, LENGTH)
    print(f"{len(kept)} of {len(found)} photos kept, {len(distinct)} distinct labels.")


if __name__ == "__main__":
    main()
