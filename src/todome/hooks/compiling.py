"""What torch.compile sees of the hooks. All that depends on the version of torch is here.

Where torch.compile cannot make one graph of a model, it makes graphs of the functions that it meets, hooks among them.
A part of a hook inside of a graph and another part outside would look for the state of the call in two places.

Before torch 2.4 no hook can be a part of a graph: a compiled model then gives what it gives without compiling, in
several graphs, and `fullgraph=True` is refused by torch.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

import torch
from torch.utils._python_dispatch import _disable_current_modes

Method = TypeVar("Method", bound=Callable[..., Any])

TORCH = tuple(int(number) for number in torch.__version__.split(".")[:2])
HOOKS_IN_GRAPHS = TORCH >= (2, 4)
GRAPH = "todome_graph"


def outside_graphs(method: Method) -> Method:
    """Keeps a method, and all that it calls in other libraries, out of every graph."""
    return cast(Method, torch.compiler.disable(method))


def is_hook(method: Method) -> Method:
    """Marks a method that torch calls. Where hooks cannot be in graphs it stays out of them, with all that it calls."""
    return method if HOOKS_IN_GRAPHS else outside_graphs(method)


def is_graph(function: Method) -> Method:
    """Marks a function of tensors that may be a graph by itself."""
    setattr(function, GRAPH, True)
    return function


def is_compiling() -> bool:
    return HOOKS_IN_GRAPHS and torch.compiler.is_compiling()


def assume_constant_result(method: Method) -> Method:
    """Has a method run when a graph is traced, and never again."""
    return torch.compiler.assume_constant_result(method) if HOOKS_IN_GRAPHS else method


@cache
def keep_eager(module: str) -> None:
    """Keeps torch.compile from making graphs of the functions of a module by themselves.

    As parts of a larger graph they are compiled. Unlike `outside_graphs` this costs nothing when they are called.
    """
    for value in list(vars(sys.modules[module]).values()) if HOOKS_IN_GRAPHS else ():
        for function in functions_in(value):
            if function.__module__ == module and not hasattr(function, GRAPH):
                skip_all(function.__code__)


def skip_all(code: CodeType) -> None:
    from torch._dynamo.eval_frame import skip_code

    skip_code(code)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            skip_all(part)


def functions_in(value: Any) -> Iterator[FunctionType]:
    """A function itself, or all that a class defines."""
    for one in vars(value).values() if isinstance(value, type) else [value]:
        inner = one.fget if isinstance(one, property) else getattr(one, "__func__", one)
        if isinstance(inner, FunctionType):
            yield inner


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
