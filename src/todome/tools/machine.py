"""The machine, the versions and the date, which every JSON of results carries."""

import contextlib
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from .. import __version__


def chip(device: torch.device) -> str:
    """Name of the device that computes, for people."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{threads} thread{'s' * (threads != 1)} of a CPU" if device.type == "cpu" else device.type


def about(device: torch.device, *packages: str) -> dict[str, Any]:
    """The machine, the versions and the date."""
    if device.type == "cuda":
        found = {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    else:
        found = {"cpu": platform.machine(), "threads": torch.get_num_threads()}
    return {**found, "python": platform.python_version(), "versions": versions_of(*packages), "date": str(date.today())}


def versions_of(*packages: str) -> dict[str, str]:
    """Versions of todome, of torch and of those of these packages that are installed."""
    versions = {"todome": __version__, "torch": torch.__version__}
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions
