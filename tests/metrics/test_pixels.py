"""MSE, PSNR, SSIM, MS-SSIM and the ratio of fine detail: known values, and errors that say what to do."""

import math
import re
import sys

import pytest
import torch
from fresh import run_fresh
from torch import Tensor
from torch.nn import functional as F

from todome.tools.metrics import high_frequency, ms_ssim, mse, psnr, ssim

MEASURES = [mse, psnr, ssim, high_frequency]


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def gaussian() -> Tensor:
    weights = torch.tensor([math.exp(-((i - 5) ** 2) / 4.5) for i in range(11)], dtype=torch.float64)
    return weights / weights.sum()


@pytest.mark.parametrize("offset", [0, 0.1, 0.01, 0.5, 1])
def test_a_constant_offset(offset):
    pictures, zeros = torch.full((2, 3, 4, 5), float(offset)), torch.zeros(2, 3, 4, 5)
    assert mse(pictures, zeros).tolist() == pytest.approx([offset**2] * 2)
    decibels = -20 * math.log10(offset) if offset else math.inf
    assert psnr(pictures, zeros).tolist() == pytest.approx([decibels] * 2)


@pytest.mark.parametrize("measure", MEASURES)
def test_every_picture_has_its_own_value(measure):
    pictures, reference = noise(3, 3, 16, 20, seed=1), noise(3, 3, 16, 20)
    together = measure(pictures, reference)
    assert together.shape == (3,)
    alone = [measure(pictures[i : i + 1], reference[i : i + 1]).item() for i in range(3)]
    assert together.tolist() == pytest.approx(alone)
    assert len(set(alone)) == 3


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_are_measured_in_float32(measure, dtype):
    pictures, reference = noise(1, 3, 16, 16, seed=1).to(dtype), noise(1, 3, 16, 16).to(dtype)
    value = measure(pictures, reference)
    assert value.dtype == torch.float32
    assert value.equal(measure(pictures.float(), reference.float()))


def naive_ssim(picture: Tensor, reference: Tensor) -> float:
    """The formula of the paper, window by window."""
    weights = torch.outer(gaussian(), gaussian())
    mirrored = [F.pad(p[None].double(), [5] * 4, mode="reflect")[0] for p in (picture, reference)]
    values = []
    for channel in range(3):
        for top in range(picture.shape[1]):
            for left in range(picture.shape[2]):
                x, y = (p[channel, top : top + 11, left : left + 11] for p in mirrored)
                mx, my = (weights * x).sum(), (weights * y).sum()
                vx, vy = (weights * (x - mx) ** 2).sum(), (weights * (y - my) ** 2).sum()
                both = (weights * (x - mx) * (y - my)).sum()
                above = (2 * mx * my + 0.01**2) * (2 * both + 0.03**2)
                values.append(above / ((mx**2 + my**2 + 0.01**2) * (vx + vy + 0.03**2)))
    return torch.stack(values).mean().item()


def test_ssim_is_that_of_the_paper():
    reference = noise(2, 3, 14, 17)
    pictures = (reference + 0.3 * noise(2, 3, 14, 17, seed=1)).clamp(0, 1)
    expected = [naive_ssim(*pair) for pair in zip(pictures, reference, strict=True)]
    assert ssim(pictures, reference).tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("measure", [ssim, ms_ssim])
def test_ssim_without_torchmetrics(monkeypatch, measure):
    monkeypatch.setitem(sys.modules, "torchmetrics.functional.image", None)
    with pytest.raises(ImportError, match=r'SSIM needs torchmetrics, .* pip install "todome\[eval\]"'):
        measure(noise(1, 3, 176, 176), noise(1, 3, 176, 176))


def test_ms_ssim_is_that_of_the_paper():
    """The values are those of its formula, computed scale by scale in float64."""
    reference = F.interpolate(noise(2, 3, 22, 24), size=(176, 192), mode="bicubic").clamp(0, 1)
    pictures = (0.1 + 0.8 * reference + 0.3 * (noise(2, 3, 176, 192, seed=1) - 0.5)).clamp(0, 1)
    assert ms_ssim(pictures, reference).tolist() == pytest.approx([0.94042, 0.93675], abs=2e-5)


@pytest.mark.parametrize("measure", [ssim, ms_ssim])
def test_equal_pictures_have_1_and_noise_lowers_it(measure):
    reference = noise(1, 3, 176, 176)
    noisier = [torch.lerp(reference, noise(1, 3, 176, 176, seed=1), share) for share in (0.0, 0.1, 0.3, 1.0)]
    values = [measure(pictures, reference).item() for pictures in noisier]
    assert values[0] == pytest.approx(1)
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.2


def test_the_detail_grows_with_the_square_of_the_contrast():
    reference = noise(1, 3, 32, 32)
    assert high_frequency(0.2 + 0.5 * reference, reference).item() == pytest.approx(0.25, rel=1e-4)


def wave(period: int) -> Tensor:
    """A wave whose mirror images at the borders of 13 pixels continue it, if its half period divides 12."""
    row = 0.5 + 0.5 * torch.cos(2 * math.pi * torch.arange(13) / period)
    return row.expand(1, 3, 13, 13)


def passing(period: int) -> float:
    """How much of the amplitude of a wave the filter passes."""
    return 1 - sum(w * math.cos(2 * math.pi * (i - 5) / period) for i, w in enumerate(gaussian().tolist()))


@pytest.mark.parametrize("period", [2, 6, 8, 12])
def test_the_detail_of_a_wave(period):
    energies = [passing(p) ** 2 * (wave(p) - 0.5).square().mean().item() for p in (period, 4)]
    assert high_frequency(wave(period), wave(4)).item() == pytest.approx(energies[0] / energies[1], rel=1e-4)


def test_a_flat_reference_has_no_detail_to_compare_with():
    assert high_frequency(noise(1, 3, 16, 16), torch.full((1, 3, 16, 16), 0.3)).isnan().all()


PICTURE = noise(1, 3, 16, 16)
BAD = {
    "pictures='list'": [0.5],
    "pictures.dtype=torch.uint8": (255 * PICTURE).byte(),
    "pictures.shape=(3, 16, 16)": PICTURE[0],
    "pictures.shape=(1, 1, 16, 16)": PICTURE[:, :1],
    "pictures.shape=(0, 3, 16, 16)": PICTURE[:0],
    "pictures.shape=(1, 3, 16, 15)": PICTURE[..., 1:],
    "pictures (lowest, highest)=(-1.0, 1.0)": torch.linspace(-1, 1, 768).view(1, 3, 16, 16),
    "pictures (lowest, highest)=(0.0, 255.0)": torch.linspace(0, 255, 768).view(1, 3, 16, 16),
    "pictures (lowest, highest)=(nan, nan)": torch.full((1, 3, 16, 16), torch.nan),
}


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("named", BAD)
def test_bad_pictures_are_refused(measure, named):
    with pytest.raises((TypeError, ValueError), match=rf"^{re.escape(named)} cannot be used\. Allowed: "):
        measure(BAD[named], PICTURE)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_bad_reference_is_refused_by_its_name(measure):
    with pytest.raises(ValueError, match=re.escape("reference (lowest, highest)=(2.0, 2.0) cannot be used.")):
        measure(PICTURE, torch.full_like(PICTURE, 2))


@pytest.mark.parametrize(("measure", "side"), [(ssim, 11), (high_frequency, 11), (ms_ssim, 176)])
def test_pictures_smaller_than_the_window_are_refused(measure, side):
    measure(noise(1, 3, side, side), noise(1, 3, side, side))
    with pytest.raises(ValueError, match=rf"Allowed: pictures of at least {side} x {side} pixels"):
        measure(noise(1, 3, side - 1, side), noise(1, 3, side - 1, side))


def test_the_measures_are_light():
    """Importing them, and measuring with one."""
    measured = "print(*sys.modules); m.ssim(*[torch.zeros(1, 3, 11, 11)] * 2); print(*sys.modules)"
    done = run_fresh(f"import sys, torch, todome.tools.metrics as m; {measured}")
    done.check_returncode()
    imported, used = ({name.split(".")[0] for name in line.split()} for line in done.stdout.splitlines())
    assert not {"torchmetrics", "scipy", "safetensors", "torchvision", "PIL"} & imported
    assert not {"torchvision", "torchaudio"} & used
