"""What the tests of the examples share: models on disk, real pipelines of tiny random parts."""

from pathlib import Path

import pytest
from zoo import small_unet, talking, tiny_pipeline


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stable Diffusion: 2 pixels on a side of one latent, level 1 at the latents' own resolution."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    talking(tiny_pipeline(unet=small_unet())).save_pretrained(path)
    return path
