"""The one place that touches the hook tables of torch modules: hanging hooks on and taking them off without a trace."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import nn

from ..steps.clock import Clock

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Hook:
    """Something of todome's on a module. Hooks are bound methods of it, so that models pickle and copy with them."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock


class Hung(NamedTuple):
    owner: Hook
    tables: tuple[dict[int, Any], ...]
    key: int


def unwrapped(module: Any) -> Any:
    """The model inside what torch.compile and data parallelism put around it."""
    while hasattr(module, "_orig_mod") or type(module).__name__ in ("DistributedDataParallel", "DataParallel"):
        module = module._orig_mod if hasattr(module, "_orig_mod") else module.module
    return module


def hang_before(module: nn.Module, method: Callable[..., Arguments | None]) -> None:
    module.register_forward_pre_hook(method, with_kwargs=True)


def hang_after(module: nn.Module, method: Callable[..., Any]) -> None:
    module.register_forward_hook(method)


def hung(root: nn.Module) -> Iterator[Hung]:
    """Every hook of todome's in a model, also in a copy of one that was patched."""
    for module in root.modules():
        before = (module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs)
        for tables in (before, (module._forward_hooks,)):
            for key, method in tables[0].items():
                owner = getattr(method, "__self__", None)
                if isinstance(owner, Hook):
                    yield Hung(owner, tables, key)


def clocks_on(root: nn.Module) -> list[Clock]:
    return list({id(hook.owner.clock): hook.owner.clock for hook in hung(root)}.values())


def take_off(root: nn.Module, clock: Clock) -> None:
    """Removes the hooks of one patch from a model."""
    for hook in list(hung(root)):
        if hook.owner.clock is clock:
            for table in hook.tables:
                table.pop(hook.key, None)
    clock.left(root)


def first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The tokens or latents a module is called with, by position or by name."""
    return args[0] if args else kwargs[first_name(kwargs)]


def with_first(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    return ((value, *args[1:]), kwargs) if args else (args, {**kwargs, first_name(kwargs): value})


def first_name(kwargs: dict[str, Any]) -> str:
    return "hidden_states" if "hidden_states" in kwargs else "x"  # diffusers; ldm and sgm
