"""What `prepare` leaves in a run's folder."""

import json
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load_file
from torch import Tensor

from todome.tools.files import atomic_write


class Entry(NamedTuple):
    file: str
    kind: str
    colour: str | None
    view: str | None
    label: int  # row of the prompts


def write_entries(run: Path, entries: list[Entry]) -> None:
    with atomic_write(run / "labels.json") as beside:
        beside.write_text(json.dumps([entry._asdict() for entry in entries], indent=0))


def read_entries(run: Path) -> list[Entry]:
    path = run / "labels.json"
    if not path.exists():
        raise SystemExit(f"{path} is missing. Run prepare.py with --run {run} first.")
    return [Entry(**entry) for entry in json.loads(path.read_text())]


def read_prompts(run: Path) -> Tensor:
    """Tokens (labels, captions, length), padded with the end token."""
    return load_file(run / "prompts.safetensors")["prompts"]
