"""What some versions of torch and diffusers cannot do: the reasons for which tests are skipped there."""

from importlib import import_module
from typing import Any

import diffusers
import pytest
import torch

from todome.hooks.compiling import HOOKS_IN_GRAPHS, TORCH

MultiControlNetModel: Any = (
    getattr(diffusers, "MultiControlNetModel", None)
    or import_module("diffusers.pipelines.controlnet.multicontrolnet").MultiControlNetModel  # where it was before
)

needs_hooks_in_graphs = pytest.mark.skipif(
    not HOOKS_IN_GRAPHS, reason="before torch 2.4 no hook is a part of a graph, and fullgraph is refused"
)

needs_dynamic_tables = pytest.mark.skipif(
    TORCH < (2, 9), reason="before torch 2.9 there is one graph for each size, and no export without a warning"
)
needs_shared_graphs = pytest.mark.skipif(
    TORCH < (2, 10), reason="up to torch 2.9 blocks do not share a graph, and torch gives up after eight"
)
needs_kept_notes = pytest.mark.skipif(
    TORCH < (2, 2), reason="torch 2.1 keeps nothing on a storage: two calls before a backward pass are refused"
)
DIFFUSERS = tuple(int(number) for number in diffusers.__version__.split(".")[:2])
needs_spacings = pytest.mark.skipif(
    DIFFUSERS < (0, 36), reason="schedulers of an older diffusers lack some spacings of noise levels"
)


def computes(dtype: torch.dtype) -> bool:
    """Whether this torch multiplies, convolves and normalises a type on a CPU."""
    x = torch.ones(1, 2, 2, 2, dtype=dtype)
    try:
        torch.layer_norm(torch.conv2d(x @ x, x), (1,))
    except RuntimeError:
        return False
    return True


HALVES = [
    pytest.param(dtype, marks=pytest.mark.skipif(not computes(dtype), reason=f"this torch has no {dtype} on a CPU"))
    for dtype in (torch.float16, torch.bfloat16)
]


def part_of_diffusers(name: str, oldest: tuple[int, int] = (0, 0)) -> Any:
    """A class of diffusers that older ones do not have, or not as it is needed."""
    if oldest > DIFFUSERS or not hasattr(diffusers, name):
        pytest.skip(f"this diffusers has no {name}")
    return getattr(diffusers, name)


def compile_blocks(model: Any, **options: Any) -> None:
    if not hasattr(model, "compile_repeated_blocks"):
        pytest.skip("this diffusers has no compile_repeated_blocks")
    model.compile_repeated_blocks(**options)
