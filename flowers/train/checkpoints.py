"""Files of a training run: weights, the state to go on from, and a log. None is ever there by half."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from todome.tools.files import atomic_write


def write_weights(run: Path, name: str, weights: Mapping[str, Tensor]) -> None:
    """The weights of one part, as they will be used."""
    tensors = {key: value.detach().cpu().contiguous() for key, value in weights.items()}
    with atomic_write(run / f"{name}.safetensors") as beside:
        save_file(tensors, beside)


def read_weights(run: Path, name: str) -> dict[str, Tensor]:
    return load_file(run / f"{name}.safetensors")


def has_weights(run: Path, name: str) -> bool:
    return (run / f"{name}.safetensors").exists()


def write_state(run: Path, name: str, state: Mapping[str, Any]) -> None:
    """Everything needed to go on: weights, optimiser, counters."""
    with atomic_write(run / f"{name}.state") as beside:
        torch.save(dict(state), beside)


def read_state(run: Path, name: str) -> dict[str, Any] | None:
    path = run / f"{name}.state"
    return torch.load(path, weights_only=True, map_location="cpu") if path.exists() else None


def log(run: Path, name: str, **entry: Any) -> None:
    """A line of the run's log."""
    with (run / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")
