"""Checks of the pictures that metrics are given, and the error for a package that is missing."""

import importlib
from typing import Any

import torch
from torch import Tensor

from ...errors import invalid_value


def check_pictures(field: str, pictures: Any, *, ranged: bool = True) -> None:
    """Refuse anything but a float tensor (B, 3, H, W), with values in 0..1 if `ranged`."""
    if not isinstance(pictures, Tensor):
        raise invalid_value(
            field, type(pictures).__name__, "a tensor", "Stack the pictures with torch.stack", TypeError
        )
    if not pictures.is_floating_point():
        remedy = "Bytes become floats with pictures.float() / 255"
        raise invalid_value(f"{field}.dtype", pictures.dtype, "floats in 0..1", remedy, TypeError)
    if pictures.ndim != 4 or pictures.shape[1] != 3 or not pictures.numel():
        remedy = "A single picture (3, H, W) becomes a batch with picture[None]"
        raise invalid_value(f"{field}.shape", tuple(pictures.shape), "(B, 3, H, W), none of them 0", remedy)
    if ranged:
        _check_range(field, pictures.detach())


def _check_range(field: str, pictures: Tensor) -> None:
    lowest, highest = torch.stack(pictures.aminmax()).tolist()
    if not (lowest >= 0 and highest <= 1):  # so that NaN is refused too
        found = (round(lowest, 4), round(highest, 4))
        remedy = "Pictures in -1..1 become (pictures + 1) / 2; clamp what a decoder overshoots"
        raise invalid_value(f"{field} (lowest, highest)", found, "values in 0..1", remedy)


def check_pair(pictures: Any, reference: Any, *, ranged: bool = True) -> None:
    """Refuse two batches that cannot be compared picture by picture."""
    check_pictures("pictures", pictures, ranged=ranged)
    check_pictures("reference", reference, ranged=ranged)
    if pictures.shape != reference.shape:
        allowed = f"that of reference, {tuple(reference.shape)}"
        raise invalid_value(
            "pictures.shape", tuple(pictures.shape), allowed, "Bring both to one size and one number of pictures"
        )


def needed(module: str, purpose: str) -> Any:
    """A module of the extra `eval`, imported only where it is used."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        remedy = 'Install it with pip install "todome[eval]"'
        raise ImportError(f"{purpose} needs {module.split('.')[0]}, which is missing. {remedy}.") from error
