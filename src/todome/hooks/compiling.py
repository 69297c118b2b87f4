"""What torch.compile sees of the hooks. All that depends on the version of torch is here.

Where torch.compile cannot make one graph of a model, it makes graphs of the functions that it meets, hooks among them.
A part of a hook inside of a graph and another part outside would look for the state of the call in two places.

Before torch 2.4 no hook can be a part of a graph: a compiled model then gives what it gives without compiling, in
several graphs, and `fullgraph=True` is refused by torch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
from torch.utils._python_dispatch import _disable_current_modes

Method = TypeVar("Method", bound=Callable[..., Any])

TORCH = tuple(int(number) for number in torch.__version__.split(".")[:2])
HOOKS_IN_GRAPHS = TORCH >= (2, 4)


def outside_graphs(method: Method) -> Method:
    """Keeps a method, and all that it calls, out of every graph."""
    return cast(Method, torch.compiler.disable(method))


if HOOKS_IN_GRAPHS:
    from torch._dynamo.eval_frame import skip_code

    is_compiling = torch.compiler.is_compiling
    assume_constant_result = torch.compiler.assume_constant_result

    def stays_eager(method: Method) -> Method:
        """Keeps torch.compile from making a graph of a method by itself. As a part of a larger graph it is compiled."""
        skip_code(method.__code__)
        return method

else:
    stays_eager = outside_graphs

    def is_compiling() -> bool:
        return False

    def assume_constant_result(fn: Method) -> Method:
        return fn


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
