"""What a run keeps on disk. A file is written beside its place and then moved there: a cut never leaves half of one."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Where to write what becomes `path` once it is complete."""
    beside = path.with_suffix(".tmp")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_weights(run: Path, name: str, weights: Mapping[str, Tensor]) -> None:
    """The weights of one part, as they will be used."""
    tensors = {key: value.detach().cpu().contiguous() for key, value in weights.items()}
    with written_whole(run / f"{name}.safetensors") as beside:
        save_file(tensors, beside)


def read_weights(run: Path, name: str) -> dict[str, Tensor]:
    return load_file(run / f"{name}.safetensors")


def write_state(run: Path, name: str, state: Mapping[str, Any]) -> None:
    """Everything needed to go on: weights, optimiser, counters."""
    with written_whole(run / f"{name}.state") as beside:
        torch.save(dict(state), beside)


def read_state(run: Path, name: str) -> dict[str, Any] | None:
    path = run / f"{name}.state"
    return torch.load(path, weights_only=True, map_location="cpu") if path.exists() else None


def log(run: Path, name: str, **entry: Any) -> None:
    """A line of the run's log."""
    with (run / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")
