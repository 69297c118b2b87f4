"""Where a reduction goes: apply, remove, and the handle of what was done."""

import weakref
from typing import Any

import torch
from torch import nn

from .errors import NothingToReduce, invalid_value
from .hooks.modules import clocks_on, take_off, unwrapped
from .reductions import Downsample, Level, Reduction
from .steps.clock import Clock
from .steps.scheduler import forget

SUPPORTED = (
    "UNet2DConditionModel and its relatives, UNetMotionModel, UNetSpatioTemporalConditionModel, UNet3DConditionModel, "
    "ControlNetModel, PixArtTransformer2DModel, DiTTransformer2DModel, and the UNetModel of ldm and sgm"
)


def apply(target: Any, reduction: Reduction | None = None, *, scheduler: Any = None) -> "Patch":
    """Makes a model faster by giving its attention fewer tokens. Changes the model in place until `remove`.

    Args:
        target: A diffusers pipeline; a bare model with BasicTransformerBlocks (UNet, ControlNet, PixArt, DiT); or a
            CompVis / Stability model (something with `.model.diffusion_model`, or the UNetModel itself). Where it is
            patched already, the new patch replaces the old one. Where parts of it have been compiled, everything that
            torch.compile has made is compiled anew: apply first, then compile, to save that time.
        reduction: `Downsample()` (default) or `Merge()`.
        scheduler: For a bare model in a loop of your own: the scheduler whose `set_timesteps` and `step` you call. A
            pipeline's own scheduler is followed by itself, also when it is swapped later.
    """
    reduction = Downsample() if reduction is None else reduction
    if not isinstance(reduction, Reduction):
        allowed = "todome.Downsample(...) or todome.Merge(...)"
        raise invalid_value("reduction", reduction, allowed, "Use todome.Downsample(factor=2)", TypeError)
    if scheduler is not None and not (hasattr(scheduler, "set_timesteps") and hasattr(scheduler, "step")):
        remedy = "Pass pipe.scheduler, or call patch.at(step, steps) before each step"
        raise invalid_value("scheduler", scheduler, "an object with set_timesteps and step", remedy, TypeError)
    return Patch(target, reduction, scheduler)


def remove(target: Any) -> None:
    """Takes off whatever patch the model has. Removing nothing is fine."""
    for root in denoisers(target):
        for clock in clocks_on(root):
            take_off(root, clock)
            if getattr(target, "scheduler", None) is not None:
                forget(target.scheduler, clock)  # a copied pipeline's clock does not know its scheduler


class Patch:
    """What `apply` did: print it, `remove` it, or use it as a context manager that removes it at the end."""

    def __init__(self, target: Any, reduction: Reduction, scheduler: Any) -> None:
        from .hooks.root import Door
        from .hosts import unet  # here, because it imports torch's compiler, and `import todome` should not

        self.models, self.reduction, self.clock = denoisers(target), reduction, Clock(reduction)
        self._layers = [layer for model in self.models for layer in unet.find_layers(model)]
        if not self._layers:
            raise NothingToReduce(nothing_found(self.models))
        self._settings = reduction.levels(max(layer.level for layer in self._layers))
        unet.check_layers(self._layers, self._settings, reduction)
        self._take_over()
        self._follow(target, scheduler)
        self._reducers = unet.reduce_layers(self._layers, self._settings, self.clock)
        if self._reducers:
            Door(self.models[0], list(self._reducers.values()), self.clock)
        if any(map(is_compiled, parts_of(target))):
            torch.compiler.reset()  # graphs made before would never notice the hooks

    def _take_over(self) -> None:
        for model in self.models:
            for old in clocks_on(model):
                self.clock.inherit(old)
                take_off(model, old)
            self.clock.models.append(weakref.ref(model))

    def _follow(self, target: Any, scheduler: Any) -> None:
        if is_pipeline(target):
            self.clock.watch(target)
        if scheduler is not None:
            self.clock.looping = True
            self.clock.listen(scheduler)

    def at(self, step: int, steps: int) -> None:
        """Says which step comes next (0 is the first) of how many, where there is no scheduler to follow.

        In training, call it once per optimisation step: all micro-batches of it, all ranks and a resumed run then make
        the same choice, and the window is a share of the training; stop=0.9 trains the last tenth dense. One batch
        cannot be inside and outside of a window by noise. A loop that draws one timestep t for the whole of it can
        call `at(trained - 1 - t, trained)`, with the scheduler's `num_train_timesteps`: then the window is that of
        sampling, and the choice follows t.
        """
        whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (step, steps))
        if not whole or not 0 <= step < steps:
            allowed = "a whole step from 0 to steps - 1 of a whole number of steps"
            raise invalid_value("(step, steps)", (step, steps), allowed, "Call patch.at(i, n) before step i of n")
        self.clock.driven(step, steps)

    def remove(self) -> None:
        """Leaves the model as it was. A patch that was replaced or removed before has nothing left to take off."""
        for model in self.models:
            take_off(model, self.clock)

    def __enter__(self) -> "Patch":
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    @property
    def levels(self) -> list[Level]:
        """What is reduced, level by level, with the grids that were met so far."""
        found = []
        for level in sorted({layer.level for layer in self._layers}):
            layers = [layer for layer in self._layers if layer.level == level]
            seen = [self._reducers[layer].tables.seen for layer in layers if layer in self._reducers]
            grids = {grid: left for one in seen for grid, left in one.items()}
            found.append(Level(level, len(layers), self._settings.get(level), grids))
        return found

    def __repr__(self) -> str:
        names = " and ".join(type(model).__name__ for model in self.models)
        window = f"from {self.reduction.start:.0%} to {self.reduction.stop:.0%} of the steps"
        lines = [f"  {self.reduction.describe(level)}" for level in self.levels]
        return "\n".join([f"{self.reduction} on {names}, {window}", *lines])


def parts_of(target: Any) -> list[Any]:
    """The models in a target whose attention may be reduced, the one that is called at every step first."""
    if is_pipeline(target):
        parts = [getattr(target, name, None) for name in ("unet", "transformer", "controlnet")]
        if parts[:2] == [None, None]:
            remedy = "Pass the model itself: todome.apply(model)"
            raise invalid_value(
                "target", type(target).__name__, "a pipeline with a unet or a transformer", remedy, TypeError
            )
        return [part for part in parts if isinstance(part, nn.Module)]
    inner = getattr(getattr(target, "model", None), "diffusion_model", None)
    model = target if inner is None else inner
    if not isinstance(model, nn.Module):
        allowed = "a diffusers pipeline, a torch model, or an object with .model.diffusion_model"
        raise invalid_value("target", target, allowed, "Load the model first and pass the object", TypeError)
    return [model]


def denoisers(target: Any) -> list[Any]:
    return [unwrapped(part) for part in parts_of(target)]


def is_pipeline(target: Any) -> bool:
    return any(cls.__name__ == "DiffusionPipeline" for cls in type(target).__mro__)


def is_compiled(model: nn.Module) -> bool:
    return any(hasattr(m, "_orig_mod") or m._compiled_call_impl is not None for m in model.modules())


def nothing_found(models: list[Any]) -> str:
    names = " and ".join(type(model).__name__ for model in models)
    return (
        f"target={names} has no BasicTransformerBlock with self-attention over image tokens. Allowed: {SUPPORTED}. "
        "Transformers with joint attention, as in SD3 and FLUX, cannot be reduced yet: leave them dense."
    )
