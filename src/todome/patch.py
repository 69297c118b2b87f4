"""Where levers go: apply, remove, and the handle of what was done."""

import functools
import sys
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .errors import invalid_value
from .hooks.attaching import Detached, close_all, detach, patches_on, unwrapped
from .hooks.patched import PatchedModel, Shared
from .levers.downsample import Downsample
from .levers.lever import Level, Lever, one_of_each
from .steps.runs import Runs, can_be_followed


def apply(target: Any, *levers: Any, scheduler: Any = None) -> "Patch":
    """Makes a model faster by leaving out what the picture does not need. Changes the model in place until `remove`.

    Args:
        target: A diffusers pipeline; a bare model (UNet, ControlNet, transformer); or a CompVis / Stability model (an
            object with `.model.diffusion_model`, or the UNetModel itself). If it is already patched, the new patch
            replaces the old one. If parts of it are compiled, everything that torch.compile has made is compiled again:
            apply first, then compile, to save that time.
        levers: What is left out: tokens with `Downsample()` (default) or `Merge()`, work that steps repeat with
            `Reuse()`, or what a `Plan` that `todome.tune` made says. One lever of each kind, in any order.
        scheduler: For a bare model in your own loop: the scheduler whose `set_timesteps` and `step` you call. The
            scheduler of a pipeline is followed automatically, also if it is swapped or copied later.
    """
    chosen = one_of_each(levers or (Downsample(),))
    if scheduler is not None and not can_be_followed(scheduler):
        remedy = "Pass pipe.scheduler, or call patch.at(step, steps) before each step"
        allowed = "an object with set_timesteps and step"
        raise invalid_value("scheduler", scheduler, allowed, remedy, TypeError)
    given = models_in(target)
    places = find_places(chosen, target, given)
    models = list(dict.fromkeys(model for place in places for model in place.models))
    old, shared = closed(models), Shared()
    follow(shared.runs, target, scheduler, models, [patched.shared.runs for patched, _ in old])
    replaced = [detach(patched, model) for patched, model in old]
    attach(shared, places, models)
    if any(map(is_compiled, given)):
        torch.compiler.reset()  # graphs made before would never notice the hooks
    return Patch(levers or chosen, places, models, shared, replaced)


def find_places(levers: Sequence[Lever], target: Any, given: Sequence[Any]) -> list[Any]:
    """Where each lever goes in some models; an error where one finds nothing."""
    from .hooks import keys, merging, reuse  # noqa: F401  # they register themselves, and import torch's compiler
    from .hooks.compiling import keep_eager
    from .hooks.registry import handler_of

    ours = [name for name in sys.modules if name.startswith("todome.") and not name.startswith("todome.tools")]
    for name in [*ours, *(handler_of(lever).__module__ for lever in levers)]:
        keep_eager(name)
    places = [handler_of(lever).places(lever, list(map(unwrapped, given))) for lever in levers]
    for place in places:
        if not place.models:
            raise place.refusal(type(target if is_pipeline(target) else unwrapped(given[0])).__name__)
    return places


def remove(target: Any) -> None:
    """Removes the patch of a model. Without a patch it does nothing."""
    take_off(denoisers(target))


def follow(runs: Runs, target: Any, scheduler: Any, models: Sequence[nn.Module], before: Sequence[Runs]) -> None:
    """Has the runs of a new patch follow what drives its models."""
    for old in before:
        runs.inherit(old)
    if is_pipeline(target):
        runs.follow_pipeline(target)
    if scheduler is not None:
        runs.restarts = True
        runs.follow(scheduler, joins=True)
    runs.on_begin = functools.partial(warn_of_replaced, models_of(runs, models))


def models_of(runs: Runs, models: Sequence[nn.Module]) -> dict[int, list[weakref.ref[nn.Module]]]:
    """Those among some models that each pipeline has whose runs are followed."""
    return {
        key: [weakref.ref(model) for model in models if any(model is part for part in denoisers(pipeline))]
        for key, pipeline in list(runs.pipelines.items())
    }


def attach(shared: Shared, places: Sequence[Any], models: Sequence[nn.Module]) -> None:
    """Adds the hooks of every lever to the models."""
    from .hooks.root import RootHook

    for model in models:
        patched = PatchedModel(shared)
        RootHook(model, [place.attach(model, patched) for place in places if model in place.models], patched)


class Patch:
    """Result of `apply`: print it to see what was done, `remove` it, or use it as a context manager that removes it.

    Attributes:
        levers: What was given to `apply`, or its default.
        models: The models that it was put on.
    """

    def __init__(
        self,
        levers: Sequence[Any],
        places: Sequence[Any],
        models: list[nn.Module],
        shared: Shared,
        replaced: list[Detached],
    ) -> None:
        self.levers, self.models, self.shared = tuple(levers), models, shared
        self._places, self._replaced = list(places), replaced

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
        self.shared.runs.at(step, steps)

    @property
    def is_on(self) -> bool:
        """Whether it is on a model: it was neither removed nor replaced."""
        return bool(self.shared.models)

    def remove(self) -> None:
        """Restores the model as it was. Does nothing if the patch was already replaced or removed."""
        take_off(self.models, self.shared)

    def __enter__(self) -> "Patch":
        return self

    def __exit__(self, *error: object) -> None:
        """Removes it, and puts back the patches that it had replaced."""
        for old in self._replaced if self.is_on else []:
            old.attach_again()
            old.patched.shared.runs.inherit(self.shared.runs)
        self.remove()

    @property
    def levels(self) -> list[Level]:
        """What has fewer tokens, level by level, with the grids of recent calls."""
        return [level for place in self._places for level in getattr(place, "levels", ())]

    def __repr__(self) -> str:
        names = " and ".join(type(model).__name__ for model in self.models)
        what = ", ".join(map(str, self.levers))
        off = "" if self.is_on else " (removed, or replaced by another patch)"
        lines = [f"  {line}" for place in self._places for line in place.lines()]
        return "\n".join([f"{what} on {names}{off}", *lines])


def take_off(models: Sequence[nn.Module], only: Shared | None = None) -> None:
    """Takes one patch off some models, or whatever patches they have."""
    for patched, model in closed(models, only):
        detach(patched, model)


def closed(models: Sequence[nn.Module], only: Shared | None = None) -> list[tuple[PatchedModel, nn.Module]]:
    """The patches on some models, ready to be taken off: all of them, or an error where one is being used."""
    found = [(patched, model) for model in models for patched in patches_on(model) if only in (None, patched.shared)]
    close_all(patched for patched, _ in found)
    return found


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
