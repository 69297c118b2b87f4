"""The path from noise to latents: the schedule's, but for its beginning."""

import pytest
import torch
from models import make_scheduler
from noise import Path, make_path

from todome.tools.schedulers import make_scheduler as scheduler_named

ALPHAS = make_scheduler().alphas_cumprod


def test_most_of_the_path_is_that_of_the_schedule():
    path, signal, noise = make_path(ALPHAS), ALPHAS.sqrt(), (1 - ALPHAS).sqrt()
    for made, usual in zip(path, (signal, noise, signal, noise), strict=True):
        torch.testing.assert_close(made[:500], usual[:500], rtol=0, atol=3e-3)
    assert path.noise.tolist() == pytest.approx(noise.tolist())
    assert path.signal[-1] < 0.4 * signal[-1]


def brightness(name: str, scale: float, path: Path) -> float:
    """Normally distributed numbers, sampled knowing all about them: how far they come of how far they should."""
    scheduler = scheduler_named(name, make_scheduler().config)
    scheduler.set_timesteps(25)
    x = torch.randn(2000, 1, 1, 1, generator=torch.Generator().manual_seed(0))
    for t in scheduler.timesteps:
        at, seen = path.at(t), scheduler.scale_model_input(x, t)
        power = at.signal**2 * scale**2 + at.noise**2
        expected = at.velocity(at.signal * scale**2 / power * seen, at.noise / power * seen)
        x = scheduler.step(expected, t, x).prev_sample
    return (x.std() / scale).item()


@pytest.mark.parametrize("name", ["dpm++", "ddim", "unipc"])
def test_pictures_get_the_brightness_of_photos(name):
    signal, noise = ALPHAS.sqrt(), (1 - ALPHAS).sqrt()
    assert brightness(name, 30, Path(signal, noise, signal, noise)) < 0.5
    assert 0.7 < brightness(name, 30, make_path(ALPHAS)) < 1.1
    assert 0.85 < brightness(name, 1, make_path(ALPHAS)) < 1.1  # and detail is what it was
