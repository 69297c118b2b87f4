"""A new style to learn: photos of flowers as screen prints in four inks, with captions; the data of `lora_study.py`.

    python benchmarks/posters.py PHOTOS --out posters

PHOTOS has one folder per kind, as for `flowers/train`. Writes posters/train (pictures and captions) and posters/real
(others, which no LoRA sees: what its pictures are compared with).
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps
from tqdm import tqdm

INKS = bytes([34, 40, 92, 196, 72, 60, 242, 178, 92, 246, 236, 214])  # indigo, brick, ochre, paper
CAPTIONS = {"daisy": "a daisy", "dandelion": "a dandelion", "roses": "a rose", "sunflowers": "a sunflower"}
CAPTIONS["tulips"] = "a tulip"
SIDE = 256
SMOOTH = 9  # pixels: flat shapes as a print has them


def poster(photo: Image.Image) -> Image.Image:
    """The middle of a photo in four flat inks, from dark to light."""
    middle = ImageOps.fit(photo.convert("L"), (SIDE, SIDE)).filter(ImageFilter.MedianFilter(SMOOTH))
    light = np.asarray(ImageOps.autocontrast(middle, cutoff=2))
    print_ = Image.fromarray(light // 64).convert("P")
    print_.putpalette(INKS)
    return print_


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--out", type=Path, default=Path("posters"))
    parser.add_argument("--train", type=int, default=40, help="pictures of each kind to train on")
    parser.add_argument("--real", type=int, default=400, help="others of each kind to compare with")
    options = parser.parse_args()
    for kind, caption in CAPTIONS.items():
        photos = sorted((options.photos / kind).iterdir())[: options.train + options.real]
        for i, path in enumerate(tqdm(photos, kind)):
            made = options.out / ("train" if i < options.train else "real") / f"{kind}-{path.stem}.png"
            made.parent.mkdir(parents=True, exist_ok=True)
            with Image.open(path) as photo:
                poster(photo).save(made, optimize=True)
            if i < options.train:
                made.with_suffix(".txt").write_text(f"{caption}\n")


if __name__ == "__main__":
    main()
