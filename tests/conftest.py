"""What every test stands on: no network, one thread per worker, a pipeline of tiny random parts, and a trained one."""

import gc
import os
import shutil
from collections.abc import Iterator

# Before anything imports torch: some processors claim AMX and lack it, and bfloat16 would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub
os.environ["TRANSFORMERS_VERBOSITY"] = "error"  # it misses a torchvision that nothing here uses
# Pytest-xdist runs one worker per core, and threads that wait for a core take it; in processes that tests start too.
os.environ["OMP_NUM_THREADS"] = "1"

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("todome", deadline=None, max_examples=25)
settings.load_profile("todome")

# What takes seconds to import is imported where it is used: the process that hands out the tests runs none of them.
COMPILING = {"test_5_compile.py", "test_5_graphs.py", "test_compiled.py"}
LONGEST = {"test_on_ray.py", "test_quality.py", "test_processes.py"} | COMPILING


@pytest.hookimpl(tryfirst=True)  # before those are left out that the command line does not want
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that take longest go first, so that no worker is left with one when the others have nothing to do."""
    items.sort(key=lambda item: item.path.name not in LONGEST)
    for item in items:
        if item.path.name in LONGEST:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """What was imported stays: Python would look through half a million objects of it again and again for garbage."""
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.fixture
def pipe():
    """A StableDiffusionPipeline of random weights. Built anew for every test: tests patch it."""
    from zoo import small_unet, tiny_pipeline

    return tiny_pipeline(unet=small_unet())


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pipeline that is not the embedded one: 32 pixels wide and high by default."""
    from zoo import small_unet, talking, tiny_pipeline

    path = tmp_path_factory.mktemp("models") / "tiny"
    talking(tiny_pipeline(unet=small_unet())).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def folder(model: Path) -> Path:
    return model


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """torch.compile without anything it made before, and without a trace of the test."""
    import torch

    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def tracer() -> Any:
    """A backend that traces and goes no further: for when a graph is made, not for what is made of it."""
    from torch._dynamo.testing import CompileCounterWithBackend

    return CompileCounterWithBackend("eager")


@pytest.fixture(scope="session")
def flowers() -> Any:
    """The embedded pipeline, opened once: whoever uses it leaves it as it was."""
    from todome.tools.pipelines import open_pipeline

    pipe = open_pipeline(device="cpu")
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.fixture(scope="session")
def lpips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights that make a distance, if not the true one."""
    import torch
    from safetensors.torch import save_file

    from todome.tools.metrics import LPIPS

    path = tmp_path_factory.mktemp("weights") / "lpips.safetensors"
    names = {"convolutions": "c", "heads": "l", "weight": "w", "bias": "b"}
    tensors = {}
    for name, tensor in LPIPS().state_dict().items():
        kind, i, *part = name.split(".")
        key = ".".join([names[kind] + i, *(names[one] for one in part)])
        tensors[key] = torch.ones_like(tensor) if kind == "heads" else tensor
    save_file(tensors, path)
    return path


@pytest.fixture(scope="session")
def inception(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of Inception that see something, if not the truth."""
    import torch

    from todome.tools.metrics import Inception

    path = tmp_path_factory.mktemp("weights") / "inception.safetensors"
    torch.manual_seed(0)
    Inception().save_half(path)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The Chromium of the system, in which pages are tried."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=chromium, args=options)
        yield browser
        browser.close()
