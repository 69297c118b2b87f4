"""Taking every patch off a target for a while and putting it back exactly, for instance to measure the dense model."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from ..hooks.attaching import Hook
from ..hooks.skipping import GATE, put_before, take_away
from ..hooks.state import PHASE
from ..patch import denoisers, is_compiled, is_pipeline, models_in
from ..steps.scheduler import restore

TABLES = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)


@contextmanager
def suspended(target: Any) -> Iterator[None]:
    """The target without its patches, and afterwards with them again: hooks, schedulers and runs as they were.

    Args:
        target: A pipeline or a model, as `todome.apply` takes it. Patched or not, the schedulers of a pipeline are
            free to be used in between: their state, which may be that of a run, comes back too.
    """
    parts = list(vars(target).values()) if is_pipeline(target) else denoisers(target)
    models = [part for part in parts if isinstance(part, nn.Module)]
    with ExitStack() as stack:
        for scheduler in (part for part in parts if hasattr(part, "set_timesteps")):
            stack.enter_context(scheduler_set_aside(scheduler))
        modules = [module for model in models for module in model.modules() if our_keys(module) or GATE in vars(module)]
        if modules and any(map(is_compiled, models_in(target))):
            torch.compiler.reset()  # a graph with our hooks in it would go on running
            stack.callback(torch.compiler.reset)
        for module in modules:
            stack.enter_context(hooks_set_aside(module))
        yield


def our_keys(module: nn.Module) -> set[int]:
    """The keys of todome's hooks in the tables of a module."""
    entries = [*module._forward_pre_hooks.items(), *module._forward_hooks.items()]
    return {key for key, method in entries if isinstance(getattr(method, "__self__", None), Hook)}


@contextmanager
def hooks_set_aside(module: nn.Module) -> Iterator[None]:
    """A module without todome's hooks. Those of others may come and go in between, and keep their order."""
    ours = our_keys(module)
    before = {name: dict(getattr(module, name)) for name in TABLES}
    phase = vars(module).pop(PHASE, None)  # another patch in between would take it away
    gate = vars(module).get(GATE)
    take_away(module)
    for name in TABLES:
        for key in ours:
            getattr(module, name).pop(key, None)
    try:
        yield
    finally:
        for name, old in before.items():
            table = getattr(module, name)  # the same object as ever: handles of hooks refer to it
            now = dict(table)
            table.clear()
            table.update({key: hook for key, hook in old.items() if key in ours or key in now} | now)
        if phase is not None:
            vars(module)[PHASE] = phase
        if gate is not None:
            put_before(module, gate)


@contextmanager
def scheduler_set_aside(scheduler: Any) -> Iterator[None]:
    """A scheduler that no clock follows, whose attributes come back as they were."""
    state = vars(scheduler)
    before = {name: copied(value) for name, value in state.items()}
    restore(scheduler)
    try:
        yield
    finally:
        state.clear()
        state.update(before)


def copied(value: Any) -> Any:
    """Lists are changed in place by a step; tensors are not."""
    return value.copy() if type(value) in (list, dict) else value
