"""Metrics between the pictures of a method and the dense ones, one by one and as a set, read from their files."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from ...errors import invalid_value
from ..files import atomic_write
from ..metrics import LPIPS, Inception, frechet_distance, high_frequency, ms_ssim, mse, psnr, ssim
from ..metrics.inputs import needed
from ..metrics.lpips import SMALLEST
from ..metrics.pixels import HALVINGS, WINDOW
from ..metrics.weights import read_safetensors
from ..pipelines import Size
from .runs import Closeness, EvaluationPlan, features_path, picture_path
from .verdict import SAME

PIXELS = 50 * 256 * 256  # that are compared at once
ENOUGH = 2048  # pictures, as many as Inception has features

Measure: TypeAlias = Callable[[Tensor, Tensor], Tensor]


class PictureMetrics:
    """The metrics of one run's pictures, with the networks whose weights were found."""

    def __init__(
        self, plan: EvaluationPlan, folder: Path, device: torch.device, lpips: LPIPS | None, inception: Inception | None
    ) -> None:
        self.plan, self.folder, self.device, self.lpips, self.inception = plan, folder, device, lpips, inception
        needed("torchmetrics.functional.image", "SSIM")
        self.real = self.real_features() if inception and plan.real else None

    def paths(self, size: Size, method: str) -> list[Path]:
        return [picture_path(self.folder, size, method, i) for i in range(self.plan.pictures)]

    @torch.inference_mode()
    def closeness(self, size: Size, method: str) -> Closeness:
        """To dense, which is not compared with itself: every measure of every picture."""
        if method == "dense":
            return Closeness()
        measures = measures_at(size, self.lpips)
        values: dict[str, list[float]] = {name: [] for name in measures}
        made, dense = (picture_batches(self.paths(size, one), self.device) for one in (method, "dense"))
        with on_device(self.lpips, self.device):
            for pictures, reference in zip(made, dense, strict=True):
                for name, measure in measures.items():
                    values[name] += finite_values(measure(pictures, reference))
        return Closeness(**{name: tuple(found) for name, found in values.items()})

    def fid(self, size: Size, method: str) -> float | None:
        """If it is asked for: to real pictures, or else to the dense ones, where dense itself has none."""
        if self.inception is None or (self.real is None and method == "dense"):
            return None
        reference = self.features(size, "dense") if self.real is None else self.real
        return frechet_distance(self.features(size, method), reference)

    def features(self, size: Size, method: str) -> Tensor:
        pictures = picture_batches(self.paths(size, method), self.device)
        return self.cached_features(features_path(self.folder, size, method), pictures, self.plan.pictures)

    def real_features(self) -> Tensor:
        """Of the pictures in a folder, or as they are in a file.

        Inception squeezes every picture into its square as it is: pictures of other shapes than those that are drawn
        are best cropped before, for a squeezed flower is another flower.
        """
        real = Path(self.plan.real or "")
        if real.suffix == ".safetensors" and real.is_file():
            return read_safetensors(real)["features"].float()
        found = pictures_in(real)
        one_by_one = (read_picture(path)[None].to(self.device) / 255 for path in found)
        return self.cached_features(self.folder / "features" / "real.safetensors", one_by_one, len(found))

    @torch.inference_mode()
    def cached_features(self, cache: Path, pictures: Iterator[Tensor], count: int) -> Tensor:
        """Features from the file that keeps them, if it has as many as there are pictures; else made, and kept."""
        if cache.is_file() and len(found := read_safetensors(cache)["features"]) == count:
            return found
        assert self.inception is not None
        with on_device(self.inception, self.device):
            made = torch.cat([self.inception(some).float().cpu() for some in pictures])
        cache.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(cache) as beside:
            needed("safetensors.torch", "Keeping features").save_file({"features": made}, beside)
        return made


def find_lpips(path: str | os.PathLike[str] | None) -> LPIPS | None:
    """From a path, which must be right, or from where it is found; without it there is a note and no LPIPS."""
    if path is not None:
        return LPIPS.load(path)
    try:
        return LPIPS.find()
    except ImportError as error:
        warnings.warn(f"LPIPS is left out. {error}", stacklevel=3)
        return None


def find_inception(path: str | os.PathLike[str] | None, pictures: int) -> Inception:
    if pictures < ENOUGH:
        told = f"FID is biased upwards by few pictures: compare it only between sets of {pictures}, as these are."
        warnings.warn(f"{told} It is meant for {ENOUGH} and more.", stacklevel=3)
    return Inception.find() if path is None else Inception.load(path)


def measures_at(size: Size, lpips: LPIPS | None) -> dict[str, Measure]:
    """The measures that pictures of this size are large enough for, by the fields of Closeness."""
    known: dict[str, tuple[int, Measure | None]] = {
        "psnr": (1, lambda a, b: psnr(a, b).clamp(max=SAME)),
        "ssim": (WINDOW, ssim),
        "ms_ssim": (WINDOW * 2**HALVINGS, ms_ssim),
        "lpips": (SMALLEST, lpips),
        "detail": (WINDOW, high_frequency),
        "mse": (1, mse),
    }
    return {name: measure for name, (side, measure) in known.items() if measure and min(size) >= side}


def finite_values(values: Tensor) -> list[float]:
    """Without NaN, the detail of a picture over that of a flat one; six digits are more than anyone reads."""
    return [float(f"{value:.6g}") for value in values.double().tolist() if value == value]


@contextmanager
def on_device(network: nn.Module | None, device: torch.device) -> Iterator[None]:
    """A network on a device for as long as it is used: its memory is measured while pictures are drawn."""
    network = network or nn.Identity()
    network.to(device)
    try:
        yield
    finally:
        network.to("cpu")


def picture_batches(paths: Sequence[Path], device: torch.device) -> Iterator[Tensor]:
    """Pictures (B, 3, H, W) from 0 to 1, so many at a time that memory is no matter. All must have one size."""
    with Image.open(paths[0]) as first:
        count = max(1, PIXELS // (first.width * first.height))
    with ThreadPoolExecutor() as pool:
        for at in range(0, len(paths), count):
            yield torch.stack(list(pool.map(read_picture, paths[at : at + count]))).to(device) / 255


def read_picture(path: Path) -> Tensor:
    """(3, H, W) in bytes."""
    with Image.open(path) as picture:
        return torch.from_numpy(np.array(picture.convert("RGB"))).permute(2, 0, 1)


def pictures_in(folder: Path) -> list[Path]:
    """The files of a folder whose endings are those of pictures, sorted."""
    endings = Image.registered_extensions()
    found = sorted(path for path in folder.glob("**/*") if path.is_file() and path.suffix.lower() in endings)
    if len(found) < 2:
        allowed = "a folder with pictures, or a .safetensors file with the tensor `features`"
        raise invalid_value(
            "real", str(folder), allowed, f"{len(found)} pictures are there, and FID needs two at the least"
        )
    return found
