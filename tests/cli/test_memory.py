"""Too little memory is one sentence with what to do, whoever runs out of it: a CPU, a GPU, while opening or drawing."""

import subprocess
import sys

import pytest
from fresh import DRAWING, python_after

from todome.tools.devices import explain_out_of_memory

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
@pytest.mark.parametrize("more", [2.5e8, pytest.param(1.3e8, marks=pytest.mark.thorough)])
def test_a_cpu_without_memory(tmp_path, more):
    """In a process that may take so many bytes more than it has: enough to open the model, or hardly."""
    words = [python_after(DRAWING), "-c", DRAW.format(more=more), *ASKED]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: There is not enough memory for "), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_what_a_library_hides_behind_another_error():
    """As diffusers does where a file does not fit: it cannot load the weights, it says."""
    hidden = RuntimeError("unable to mmap 70000000 bytes: Cannot allocate memory (12)")
    with pytest.raises(MemoryError, match=r"^There is not enough memory for it\. Wait\.$"):
        load(OSError("Unable to load weights"), hidden)
    with pytest.raises(ValueError, match="out of memory"):
        load(ValueError("prompt='a robot out of memory'"), RuntimeError("another"))


def load(told: Exception, hidden: Exception) -> None:
    with explain_out_of_memory("it", "Wait"):
        try:
            raise hidden
        except RuntimeError as error:
            raise told from error
