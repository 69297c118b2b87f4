"""Reuse over steps by hand, which todome is compared with: every call is dense, and values are put in afterwards."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

STAGES = {"S": 1, "s": 1, "D": 2, "d": 2, "T": 3, "t": 3}
Place = tuple[float, float, float, float]  # along which lines are; what latents and output weigh in the picture; share


def of_noise(sigma: float) -> Place:
    """Where a model that predicts noise is: its picture is (x - sigma noise) of latents that were scaled down."""
    return sigma, math.sqrt(1 + sigma**2), -sigma, 1.0


def of_velocity(sigma: float) -> Place:
    signal = 1 / math.sqrt(1 + sigma**2)
    return sigma, signal, -sigma * signal, signal


def of_picture(sigma: float) -> Place:
    return sigma, 0.0, 1.0, 1 / sigma


def of_flow(time: float) -> Place:
    return time, 1.0, -time, 1 - time


def from_alphas(scheduler: Any) -> list[float]:
    """The noise levels of a run of DDIM and its like."""
    kept = scheduler.alphas_cumprod[scheduler.timesteps.long()].double()
    return ((1 - kept) / kept).sqrt().tolist()


def from_sigmas(scheduler: Any) -> list[float]:
    return scheduler.sigmas[:-1].tolist()


class Straight:
    """The line through the last two values."""

    def __init__(self) -> None:
        self.known: list[tuple[float, Tensor]] = []

    def note(self, place: float, value: Tensor) -> None:
        self.known = [*self.known[-1:], (place, value.clone())]

    def at(self, place: float) -> Tensor:
        (first, before), (second, last) = self.known
        return last + (last - before) * ((place - second) / (second - first))


class ByHand:
    """Stands in for the forward of a model: the whole batch goes through all of it, in every step.

    Args:
        word: The kinds of the steps.
        levels: The noise levels of the run that the scheduler is set up for.
        place: What follows from one of them.
        joints: The modules whose output goes up into the computed stages, by their number.
        calls: Of the model in a step.
    """

    def __init__(
        self,
        model: Any,
        word: str,
        levels: Callable[[], list[float]],
        place: Callable[[float], Place],
        joints: dict[int, nn.Module],
        calls: int = 1,
    ) -> None:
        self.dense, self.word, self.levels, self.place, self.joints = model.forward, word, levels, place, joints
        self.calls, self.count = calls, 0
        self.callers: list[dict[Any, Straight]] = [{} for _ in range(calls)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        step, caller = divmod(self.count, self.calls)
        self.count += 1
        self.letter, self.lines = self.word[step], self.callers[caller]
        self.now, *weights, share = self.place(self.levels()[step])
        latents = args[0] if args else kwargs["hidden_states" if "hidden_states" in kwargs else "sample"]
        output = self.dense(*args, **kwargs)
        tensor = output[0]
        tensor.copy_(self.changed(latents, tensor.clone(), weights, share))
        return output

    def changed(self, latents: Tensor, output: Tensor, weights: list[float], share: float) -> Tensor:
        of_latents, of_output = weights
        noisy = like(latents, output)
        if self.letter == "o":
            return (self.line("picture").at(self.now) - noisy * of_latents) / of_output
        if self.letter == "F":
            self.line("picture").note(self.now, noisy * of_latents + output * of_output)
            if len(output) % 2 == 0:
                unconditional, conditional = output.chunk(2)
                self.line("guidance").note(self.now, (conditional - unconditional) * share)
        if self.letter in "fsdt":
            conditional = output[len(output) // 2 :]
            return torch.cat([conditional - self.line("guidance").at(self.now) / share, conditional])
        return output

    def line(self, name: Any) -> Straight:
        return self.lines.setdefault(name, Straight())

    def at_joint(self, number: int) -> Callable[..., Tensor | None]:
        def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
            if self.letter == "F":
                self.line(number).note(self.now, output)
            return self.line(number).at(self.now) if STAGES.get(self.letter) == number else None

        return hook


def like(latents: Tensor, output: Tensor) -> Tensor:
    """The noisy part of latents with the picture of another one in their channels; zeros for variances."""
    found = torch.zeros_like(output)
    part = tuple(slice(min(given, back)) for given, back in zip(latents.shape, output.shape, strict=True))
    found[part] = latents[part]
    return found


@contextmanager
def by_hand(model: Any, *given: Any, **options: Any) -> Iterator[None]:
    forward = ByHand(model, *given, **options)
    hooks = [module.register_forward_hook(forward.at_joint(number)) for number, module in forward.joints.items()]
    model.forward = forward
    try:
        yield
    finally:
        del model.forward
        for hook in hooks:
            hook.remove()
