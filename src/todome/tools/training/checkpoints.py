"""Checkpoints of a training: folders that are there whole or not at all, the newest few of them.

RUN/checkpoints/000250/lora.safetensors   the LoRA as it is then, to be tried
RUN/checkpoints/000250/state.pt           what the training needs to go on

Nothing is drawn from a generator that has a state: noise and order are functions of the seed and the step.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ...errors import invalid_value
from ..files import UNFINISHED, atomic_folder

STATE, LORA = "state.pt", "lora.safetensors"


def checkpoints_in(folder: Path) -> list[Path]:
    """The oldest first."""
    return sorted((path for path in folder.glob("[0-9]*") if path.is_dir()), key=lambda path: int(path.name))


def save_checkpoint(
    folder: Path, step: int, state: Mapping[str, Any], write_lora: Callable[[Path], None], keep: int
) -> Path:
    """Saves what `state` holds and the LoRA, and then removes the oldest beyond `keep`."""
    path = folder / f"{step:06d}"
    folder.mkdir(parents=True, exist_ok=True)
    for unfinished in folder.glob(UNFINISHED):
        shutil.rmtree(unfinished)
    if not path.exists():
        with atomic_folder(path) as new:
            torch.save({"step": step, **state}, new / STATE)
            write_lora(new / LORA)
    for old in checkpoints_in(folder)[:-keep]:
        discard(old)
    return path


def newest_state(folder: Path) -> dict[str, Any] | None:
    """The state of the newest checkpoint, on the CPU; None where there is none."""
    saved = checkpoints_in(folder)
    return torch.load(saved[-1] / STATE, map_location="cpu", weights_only=True) if saved else None


def discard(folder: Path) -> None:
    """Gives up a folder's name first: one that is only half removed must not be taken for a whole one."""
    shutil.rmtree(folder.rename(folder.with_name(f".{folder.name}.part")))


def check_same(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuses to go on with anything but what the training began with."""
    for field, value in new.items():
        if value != old.get(field):
            remedy = "Use it again, or train into another file"
            raise invalid_value(field, value, f"{old.get(field)!r}, with which this training began", remedy)
