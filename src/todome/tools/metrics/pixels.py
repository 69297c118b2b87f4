"""Measures on pixels: each compares pictures (B, 3, H, W) in 0..1 with a reference, and gives one value per picture."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ...errors import invalid_value
from .inputs import check_pair, needed

WINDOW = 11  # pixels on a side of the Gaussian windows
SIGMA = 1.5  # of the Gaussian, in pixels
HALVINGS = 4  # of MS-SSIM
FLAT = 1e-12  # mean square of what rounding leaves of a picture without any detail


def mse(pictures: Tensor, reference: Tensor) -> Tensor:
    """The mean squared difference, (B,)."""
    check_pair(pictures, reference)
    return (pictures.float() - reference.float()).square().mean(dim=(1, 2, 3))


def psnr(pictures: Tensor, reference: Tensor) -> Tensor:
    """Peak signal to noise ratio in dB, (B,): -10 log10 of the mean squared difference. Equal pictures have inf."""
    return -10 * mse(pictures, reference).log10()


def ssim(pictures: Tensor, reference: Tensor) -> Tensor:
    """Structural similarity, (B,), at most 1 (Wang et al., IEEE TIP 13(4), 2004).

    As torchmetrics computes it: a Gaussian window of 11 x 11 with sigma 1.5 around every pixel, mirrored at the border,
    constants 0.01 and 0.03, the mean over pixels and channels.
    """
    check_pair(pictures, reference)
    check_window(pictures)
    similarity = needed("torchmetrics.functional.image", "SSIM").structural_similarity_index_measure
    return similarity(pictures.float(), reference.float(), sigma=SIGMA, data_range=1.0, reduction="none")


def ms_ssim(pictures: Tensor, reference: Tensor) -> Tensor:
    """Multi-scale structural similarity, (B,), from 0 to 1 (Wang et al., Asilomar 2003).

    As torchmetrics computes it, with the window and the constants of `ssim`: the contrast and structure term of the
    windows that lie inside the picture, at its full size and after one to three halvings, and `ssim` itself after four.
    Each has its mean, at least 0, raised to the paper's power; the product of the five is the value.
    """
    check_pair(pictures, reference)
    check_window(pictures, HALVINGS)
    similarity = needed("torchmetrics.functional.image", "MS-SSIM").multiscale_structural_similarity_index_measure
    return similarity(pictures.float(), reference.float(), sigma=SIGMA, data_range=1.0, reduction="none")


def high_frequency(pictures: Tensor, reference: Tensor) -> Tensor:
    """Energy of the fine detail in pictures over that in the reference, (B,): below 1 is blur, above 1 is noise.

    The detail is what a high-pass filter leaves: the picture minus its Gaussian blur (11 x 11, sigma 1.5, mirrored at
    the border). Structures with a period of 6 pixels pass with half of their energy, finer ones with more. The energy
    is the mean of its square over pixels and channels; it is not relative to the contrast of the picture. A flat
    reference, which has no detail, gives NaN.

    ToDo (arXiv 2402.13573) judges the sharpness of its pictures by a high-pass filter too. What is computed here is
    written out because it need not be the same filter: the values are not to be compared with that paper's.
    """
    check_pair(pictures, reference)
    check_window(pictures)
    energy, of_reference = detail_energy(pictures.float()), detail_energy(reference.float())
    return torch.where(of_reference > FLAT, energy / of_reference, torch.nan)


def detail_energy(pictures: Tensor) -> Tensor:
    """The mean square of a picture minus its blur: (B, 3, H, W) to (B,)."""
    positions = torch.arange(WINDOW, device=pictures.device) - WINDOW // 2
    weights = (-positions.square() / (2 * SIGMA**2)).exp()
    weights = (weights / weights.sum()).expand(3, 1, 1, -1)  # one row for each channel
    blurred = F.pad(pictures, [WINDOW // 2] * 4, mode="reflect")
    for kernel in (weights, weights.mT):  # a Gaussian is a row times a column
        blurred = F.conv2d(blurred, kernel, groups=3)
    return (pictures - blurred).square().mean(dim=(1, 2, 3))


def check_window(pictures: Tensor, halvings: int = 0) -> None:
    side = WINDOW * 2**halvings
    if min(pictures.shape[2:]) < side:
        smaller = f" after {halvings} halvings" if halvings else ""
        allowed = f"pictures of at least {side} x {side} pixels, the size of the window{smaller}"
        raise invalid_value("pictures.shape", tuple(pictures.shape), allowed, "Compare larger pictures")
