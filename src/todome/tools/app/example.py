"""The finished example that the page opens with, from the folder `example`, which docs/figures/example.py makes."""

import json
import shutil
from pathlib import Path

from ..metadata import settings_of
from .form import PLAIN, Form
from .session import Pair, Run, SavedPicture

FILES = Path(__file__).with_name("example")
NUMBER = 0  # runs of visitors begin with 1


def load_example(root: Path) -> tuple[Run, str]:
    """The example as a run, its files copied to where the page serves them from, and the machine it was made on."""
    folder = root / "example"
    shutil.copytree(FILES, folder)
    about = json.loads((folder / "example.json").read_text(encoding="utf-8"))
    full, reduced = (saved(folder / f"{name}.png", about[name]) for name in ("full", "reduced"))
    pair = Pair(full, reduced, folder / "difference.png", about["closeness"])
    return Run(NUMBER, Form(), PLAIN, (full,), (pair,)), about["machine"]


def saved(file: Path, about: dict) -> SavedPicture:
    settings = settings_of(file)
    return SavedPicture(file, settings, settings, about["sampler"], about["reduced"], about["seconds"])
