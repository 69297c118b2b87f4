"""Keeping hooks out of graphs of their own.

Where torch.compile cannot make one graph of a model, it makes graphs of the functions that it meets, hooks among them.
A part of a hook inside of a graph and another part outside would look for the state of the call in two places.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
from torch._dynamo.eval_frame import skip_code
from torch.utils._python_dispatch import _disable_current_modes

Method = TypeVar("Method", bound=Callable[..., Any])


def stays_eager(method: Method) -> Method:
    """Keeps torch.compile from making a graph of a method by itself. As a part of a larger graph it is compiled."""
    skip_code(method.__code__)
    return method


def outside_graphs(method: Method) -> Method:
    """Keeps a method, and all that it calls, out of every graph."""
    return cast(Method, torch.compiler.disable(method))


@contextmanager
def real_tensors() -> Iterator[None]:
    """Makes real tensors where torch.export makes others of all that it sees."""
    modes = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    try:
        with _disable_current_modes():
            yield
    finally:
        for mode in reversed(modes):
            torch._C._push_on_torch_function_stack(mode)
