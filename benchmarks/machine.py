"""Where and with what a result was measured: what every JSON of results says of itself."""

import contextlib
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

import todome


def about(device: torch.device, *packages: str) -> dict[str, Any]:
    """The machine, the versions and the date."""
    versions = {"todome": todome.__version__}
    for package in ("torch", *packages):
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    if device.type == "cuda":
        chip = {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    else:
        chip = {"cpu": platform.machine(), "threads": torch.get_num_threads()}
    return {**chip, "python": platform.python_version(), "versions": versions, "date": str(date.today())}
