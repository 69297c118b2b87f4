"""Where a reduction goes: apply, remove, and the handle of what was done."""

import functools
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .errors import invalid_value
from .hooks.modules import Context, Detached, close_all, contexts_on, detach, unwrapped
from .hooks.state import ThreadState
from .reductions import Downsample, Level, Merge, Reduction, layer_table
from .steps.clock import Clock
from .steps.runs import Runs, can_be_followed
from .tokens.tables import TableCache


def apply(target: Any, reduction: Reduction | None = None, *, scheduler: Any = None) -> "Patch":
    """Makes a model faster by giving its attention fewer tokens. Changes the model in place until `remove`.

    Args:
        target: A diffusers pipeline; a bare model with BasicTransformerBlocks (UNet, ControlNet); or a CompVis /
            Stability model (an object with `.model.diffusion_model`, or the UNetModel itself). If it is already
            patched, the new patch replaces the old one. If parts of it are compiled, everything that torch.compile
            has made is compiled again: apply first, then compile, to save that time.
        reduction: `Downsample()` (default), `Merge()`, or a `Plan` that `todome.tune` made.
        scheduler: For a bare model in your own loop: the scheduler whose `set_timesteps` and `step` you call. The
            scheduler of a pipeline is followed automatically, also if it is swapped or copied later.
    """
    reduction = Downsample() if reduction is None else reduction
    if not isinstance(reduction, Reduction):
        allowed = "todome.Downsample(...), todome.Merge(...) or todome.Plan.load(FILE)"
        raise invalid_value("reduction", reduction, allowed, "Use todome.Downsample(factor=2)", TypeError)
    if scheduler is not None and not can_be_followed(scheduler):
        remedy = "Pass pipe.scheduler, or call patch.at(step, steps) before each step"
        allowed = "an object with set_timesteps and step"
        raise invalid_value("scheduler", scheduler, allowed, remedy, TypeError)
    return Patch(target, reduction, scheduler)


def remove(target: Any) -> None:
    """Removes the patch of a model. Without a patch it does nothing."""
    take_off(denoisers(target))


class Patch:
    """Result of `apply`: print it to see what was done, `remove` it, or use it as a context manager that removes it."""

    def __init__(self, target: Any, reduction: Reduction, scheduler: Any) -> None:
        from .hosts import find_layers, nothing_to_reduce  # here, for they import torch's compiler

        given = models_in(target)
        self._layers = find_layers(*map(unwrapped, given))
        if not self._layers:
            raise nothing_to_reduce(target if is_pipeline(target) else unwrapped(given[0]), given)
        self.reduction = reduction
        self.models = list(dict.fromkeys(layer.root for layer in self._layers))
        self._settings = reduction.settings(self._layers)
        self._check()
        self._tables = TableCache(functools.partial(layer_table, reduction))
        self._replaced: list[Detached] = []
        self.clock = self._new_clock(target, scheduler)
        self._add_hooks()
        if any(map(is_compiled, given)):
            torch.compiler.reset()  # graphs made before would never notice the hooks

    def _check(self) -> None:
        """Refuses what could not work, before anything is changed."""
        if not isinstance(self.reduction, Merge):
            for layer, settings in zip(self._layers, self._settings, strict=True):
                if settings is not None:
                    layer.check(layer.attention)

    def _new_clock(self, target: Any, scheduler: Any) -> Clock:
        clock = Clock(self.reduction)
        runs = clock.runs
        old = [(context, model) for model in self.models for context in contexts_on(model)]
        close_all(context for context, _ in old)
        for context, model in old:
            runs.inherit(context.clock.runs)
            self._replaced.append(detach(context, model))
        if is_pipeline(target):
            runs.follow_pipeline(target)
        if scheduler is not None:
            runs.restarts = True
            runs.follow(scheduler, joins=True)
        runs.on_begin = functools.partial(warn_of_replaced, self._models_of(runs))
        return clock

    def _models_of(self, runs: Runs) -> dict[int, list[weakref.ref[nn.Module]]]:
        """The models of the patch that each pipeline has whose runs are followed."""
        return {
            key: [weakref.ref(model) for model in self.models if any(model is part for part in denoisers(pipeline))]
            for key, pipeline in list(runs.pipelines.items())
        }

    def _add_hooks(self) -> None:
        from .hooks.grids import GridReader
        from .hooks.keys import KeptKeys
        from .hooks.merging import MergedTokens
        from .hooks.root import RootHook

        hook = MergedTokens if isinstance(self.reduction, Merge) else KeptKeys
        state, said = ThreadState(), set()
        for model in self.models:
            context = Context(self.clock, self._tables, state, said)
            readers: dict[nn.Module, GridReader] = {}
            for number, (layer, settings) in enumerate(zip(self._layers, self._settings, strict=True)):
                if layer.root is model and settings is not None:
                    if layer.holder not in readers:
                        readers[layer.holder] = GridReader(layer, context)
                    hook(layer, number, settings, readers[layer.holder], context)
            RootHook(model, list(readers.values()), context)

    def at(self, step: int, steps: int) -> None:
        """Sets the next step (0 is the first) and the number of steps, if there is no scheduler to follow.

        It stays set, in the thread that called it, until the next call. In training, call it once per optimisation
        step: all its micro-batches, all ranks and a resumed run then keep the same keys, and the window is a share of
        the training; stop=0.9 trains the last tenth dense. A window by noise level needs one timestep t for the whole
        batch: call `at(trained - 1 - t, trained)`, where trained is the scheduler's `num_train_timesteps`. Then the
        window is that of sampling, and the kept keys follow t.
        """
        whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (step, steps))
        if not whole or not 0 <= step < steps:
            allowed = "a whole step from 0 to steps - 1 of a whole number of steps"
            raise invalid_value("(step, steps)", (step, steps), allowed, "Call patch.at(i, n) before step i of n")
        if not self.is_on:
            raise RuntimeError(
                "This patch is on no model any more: it was removed, or another one replaced it. Call at() of the "
                "patch that todome.apply returned last."
            )
        self.clock.runs.at(step, steps)

    @property
    def is_on(self) -> bool:
        """Whether it is on a model: it was neither removed nor replaced."""
        return bool(self.clock.contexts)

    def remove(self) -> None:
        """Restores the model as it was. Does nothing if the patch was already replaced or removed."""
        take_off(self.models, self.clock)

    def __enter__(self) -> "Patch":
        return self

    def __exit__(self, *error: object) -> None:
        """Removes it, and puts back the patches that it had replaced."""
        for old in self._replaced if self.is_on else []:
            old.attach_again()
            old.context.clock.runs.inherit(self.clock.runs)
        self.remove()

    @property
    def levels(self) -> list[Level]:
        """What is reduced, level by level, with the grids of recent calls."""
        return [self._level(level) for level in sorted({layer.level for layer in self._layers})]

    def _level(self, level: int) -> Level:
        numbers = [number for number, layer in enumerate(self._layers) if layer.level == level]
        settings = [self._settings[number] for number in numbers if self._settings[number] is not None]
        if not settings:
            return Level(level, len(numbers), None, {})
        grids = sorted(set(self._tables.grids_of(numbers, self._has_graphs())), reverse=True)
        kept = {grid: sum(self.reduction.kept_count(grid, s[0]) for s in settings) // len(settings) for grid in grids}
        return Level(level, len(numbers), self.reduction.summary(settings), kept)

    def _has_graphs(self) -> bool:
        """Whether compiled graphs may read the tables, which do not say which ones they read."""
        return any(context.inputs.traced for context in list(self.clock.contexts)) or any(map(is_compiled, self.models))

    def __repr__(self) -> str:
        names = " and ".join(type(model).__name__ for model in self.models)
        window = f"from {self.reduction.start:.0%} to {self.reduction.stop:.0%} of the steps"
        lines = [f"  {self.reduction.describe(level)}" for level in self.levels]
        off = "" if self.is_on else " (removed, or replaced by another patch)"
        return "\n".join([f"{self.reduction} on {names}, {window}{off}", *lines])


def take_off(models: Sequence[nn.Module], clock: Clock | None = None) -> None:
    """Takes the patch with this clock off some models, or whatever patch they have."""
    found = [(context, model) for model in models for context in contexts_on(model) if clock in (None, context.clock)]
    close_all(context for context, _ in found)
    for context, model in found:
        detach(context, model)


def models_in(target: Any) -> list[nn.Module]:
    """The models in a target whose attention may be reduced, as they are: maybe compiled."""
    if is_pipeline(target):
        named = sorted(target.components.items(), key=lambda item: item[0] != "unet")  # its layers come first
        several = [part if isinstance(part, (list, tuple)) else [part] for _, part in named]  # a list of ControlNets
        models = list(dict.fromkeys(part for parts in several for part in parts if isinstance(part, nn.Module)))
    else:
        inner = getattr(getattr(target, "model", None), "diffusion_model", None)
        models = [target if inner is None else inner]
    for model in models:
        check_module(target, model)
    return models


def check_module(target: Any, model: Any) -> None:
    if type(model).__name__ == "DataParallel":
        allowed = "a model without torch.nn.DataParallel around it, whose threads know nothing of the run"
        remedy = "Use DistributedDataParallel, or one process for each GPU"
        raise invalid_value("target", "DataParallel", allowed, remedy, TypeError)
    if not isinstance(model, nn.Module):
        allowed = "a diffusers pipeline, a torch model, or an object with .model.diffusion_model"
        remedy = "Load the model first and pass the object"
        raise invalid_value("target", target, allowed, remedy, TypeError)


def denoisers(target: Any) -> list[Any]:
    """The models in a target whose attention may be reduced, without what torch.compile puts around them."""
    return [unwrapped(model) for model in models_in(target)]


def is_pipeline(target: Any) -> bool:
    return any(cls.__name__ in ("DiffusionPipeline", "ModularPipeline") for cls in type(target).__mro__)


def is_compiled(model: nn.Module) -> bool:
    return any(hasattr(m, "_orig_mod") or m._compiled_call_impl is not None for m in model.modules())


def warn_of_replaced(patched: dict[int, list[weakref.ref[nn.Module]]], pipeline: Any) -> None:
    """Says where a patched model of a pipeline was replaced by another one, which is dense."""
    present, had = denoisers(pipeline), patched.get(id(pipeline), [])
    gone = [model for model in (ref() for ref in had) if not any(model is other for other in present)]
    if gone:
        name = type(gone[0]).__name__ if gone[0] is not None else "model"
        warnings.warn(
            f"The {name} that todome.apply patched is no longer in this {type(pipeline).__name__}: what took its place "
            "is dense. Call todome.apply(pipe) again.",
            stacklevel=2,
        )
