"""What every test stands on: no network, one thread per worker, and a pipeline made of tiny random parts."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub
os.environ["TRANSFORMERS_VERBOSITY"] = "error"  # it misses a torchvision that nothing here uses

import pytest
import torch
from zoo import small_unet, tiny_pipeline


def pytest_configure() -> None:
    torch.set_num_threads(1)  # pytest-xdist runs one worker per core


@pytest.fixture
def pipe():
    """A StableDiffusionPipeline of random weights. Built anew for every test: tests patch it."""
    return tiny_pipeline(unet=small_unet())
