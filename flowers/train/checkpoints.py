"""What a run keeps on disk. A file is written beside its place and then moved there: a cut never leaves half of one."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor


def write_weights(run: Path, name: str, weights: Mapping[str, Tensor]) -> None:
    """The weights of one part, as they will be used."""
    path = run / f"{name}.safetensors"
    scratch = path.with_suffix(".tmp")
    save_file({key: value.detach().cpu().contiguous() for key, value in weights.items()}, scratch)
    os.replace(scratch, path)


def read_weights(run: Path, name: str) -> dict[str, Tensor]:
    return load_file(run / f"{name}.safetensors")


def write_state(run: Path, name: str, state: Mapping[str, Any]) -> None:
    """Everything needed to go on: weights, optimiser, counters."""
    path = run / f"{name}.state"
    scratch = path.with_suffix(".tmp")
    torch.save(dict(state), scratch)
    os.replace(scratch, path)


def read_state(run: Path, name: str) -> dict[str, Any] | None:
    path = run / f"{name}.state"
    return torch.load(path, weights_only=True, map_location="cpu") if path.exists() else None


def log(run: Path, name: str, **entry: Any) -> None:
    """A line of the run's log."""
    with (run / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")
