"""Devices and number formats: what a name means here, whether it can be used, and what to say when memory runs out."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from ..errors import invalid_value

DTYPES = ("float32", "float16", "bfloat16")
OUT_OF_MEMORY = (  # as CUDA and MPS say it, Windows, torch on Linux, and Linux itself
    "out of memory",
    "not enough memory",
    "can't allocate memory",
    "cannot allocate memory",
)
ILLEGAL_INSTRUCTION = (-signal.SIGILL, 0xC000001D)  # return codes of a process that was ended by one: POSIX, Windows
PRODUCT = "import sys; sys.path[:] = sys.argv[1:]; import torch; a = torch.ones(64, 64).bfloat16(); a @ a"


def reachable_device(name: str) -> torch.device:
    """Device of that name; "auto" is the GPU if there is one."""
    if name == "auto":
        return torch.device(
            "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        )
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise invalid_value(
            "device", name, '"auto", "cpu", or a GPU that torch can reach here', '"auto" takes the best there is'
        ) from None
    return device


def torch_dtype(name: str, device: torch.device) -> torch.dtype:
    """Number format of that name, where the device can compute in it."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.float16
    if name not in DTYPES:
        remedy = '"auto" is float16 on a GPU and float32 on a CPU'
        raise invalid_value("dtype", name, f'"auto", {", ".join(DTYPES)}', remedy)
    if name == "bfloat16" and device.type == "cpu" and not survives(PRODUCT):  # it claims AMX and lacks it
        allowed = "float32 on this CPU, where a product in bfloat16 is an illegal instruction"
        remedy = "Set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment and start again, or use float32"
        raise invalid_value("dtype", name, allowed, remedy)
    return getattr(torch, name)


@cache
def survives(code: str) -> bool:
    """Whether a Python process that runs this code, with the packages of this one, meets no illegal instruction."""
    child = subprocess.run([sys.executable, "-c", code, *sys.path], capture_output=True, check=False)
    return child.returncode not in ILLEGAL_INSTRUCTION


@contextmanager
def explain_out_of_memory(what: str, remedy: str) -> Iterator[None]:
    """Where memory runs out, says for what and what to do, whatever the device calls it."""
    try:
        yield
    except Exception as error:
        if (cause := out_of_memory(error)) is None:
            raise
        raise MemoryError(f"There is not enough memory for {what}. {remedy}.") from cause


def out_of_memory(error: BaseException | None) -> BaseException | None:
    """The error that says so, of those that led to this one: libraries hide it behind others."""
    if error is None or isinstance(error, MemoryError):
        return error
    if isinstance(error, ValueError):  # ours, and what it quotes may be anything
        return out_of_memory(error.__context__)
    return error if any(phrase in str(error).lower() for phrase in OUT_OF_MEMORY) else out_of_memory(error.__context__)
