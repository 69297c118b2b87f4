"""Too little memory is one sentence with what to do, whoever runs out of it: a CPU, a GPU, while opening or drawing."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fresh import DRAWING, python_after

DRAW = """
import resource, sys
from pathlib import Path
from todome.tools.cli import main

taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + int({more}), resource.RLIM_INFINITY))
main()
"""
ASKED = ("generate", "a", "--size", "8192", "--steps", "1", "-o", "a.png", "--device", "cpu")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
@pytest.mark.parametrize(("more", "what"), [(2.5e8, "8192x8192 pixels"), (1.3e8, "todome-flowers on cpu")])
def test_a_cpu_without_memory(tmp_path, more, what):
    """In a process that may take so many bytes more than it has."""
    words = [python_after(DRAWING), "-c", DRAW.format(more=more), *ASKED]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: There is not enough memory for {what}. "), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), MemoryError()]
)
def test_a_gpu_without_memory(refused, opened_once, error):
    def full(*_: Any) -> None:
        raise error

    handle = opened_once.unet.register_forward_pre_hook(full)
    try:
        said = refused("generate", "a", "--size", "64", "-o", "a.png", "--device", "cpu")
    finally:
        handle.remove()
    assert said.startswith("There is not enough memory for 64x64 pixels. Lower the size")
    assert not Path("a.png").exists()
