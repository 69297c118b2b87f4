"""Metrics between pictures: pixel by pixel, to the eye of a network, and as a set.

Not imported by `import todome`; what it needs comes with `pip install "todome[eval]"`.
"""

from .fid import Inception, frechet_distance
from .lpips import LPIPS
from .pixels import high_frequency, ms_ssim, mse, psnr, ssim

__all__ = ["LPIPS", "Inception", "frechet_distance", "high_frequency", "ms_ssim", "mse", "psnr", "ssim"]
