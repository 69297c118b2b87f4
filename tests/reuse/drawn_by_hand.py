"""Reuse over steps by hand, which todome is compared with: every call is dense, and values are put in afterwards."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Kind:
    """A kind of pipeline, and how it is drawn with.

    Attributes:
        levels: The noise levels that its scheduler is set up for.
        place: What follows from one of them.
        guided: Whether the batch is guidance in two halves.
        rows: How many rows one half of the batch, or all of an unguided one, has in the first module.
        calls: Of the model in a step.
    """

    name: str
    build: Callable[[], Any]
    draw: Callable[..., Tensor]
    levels: Callable[[Any], list[float]] = from_alphas
    place: Callable[[float], Place] = of_noise
    guided: bool = True
    rows: int = 1
    calls: int = 1

    def __str__(self) -> str:
        return self.name

    def by_hand(self, word: str, pipe: Any = None, **options: Any) -> Tensor:
        """The picture that a word gives."""
        pipe = pipe or self.build()
        model = pipe.unet if hasattr(pipe, "unet") else pipe.transformer
        forward = ByHand(model, word, lambda: self.levels(pipe.scheduler), self.place, self.calls)
        with in_place_of_forward(forward):
            return self.draw(pipe, **options)


def word_of(patch: Any) -> str:
    """The kinds of the steps of the last run."""
    done = patch._places[0].states[0].report.done
    return "".join(done[index] for index in sorted(done))


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=2e-4 * float(expected.abs().mean()))


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
        calls: Of the model in a step.
    """

    def __init__(
        self, model: Any, word: str, levels: Callable[[], list[float]], place: Callable[[float], Place], calls: int = 1
    ) -> None:
        self.model, self.dense, self.word, self.levels, self.place = model, model.forward, word, levels, place
        self.calls, self.count = calls, 0
        self.callers: list[dict[Any, Straight]] = [{} for _ in range(calls)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        step, caller = divmod(self.count, self.calls)
        self.count += 1
        self.letter, self.lines = self.word[step], self.callers[caller]
        self.now, *weights, share = self.place(self.levels()[step])
        latents = args[0] if args else next(kwargs[name] for name in ("hidden_states", "sample", "x") if name in kwargs)
        output = self.dense(*args, **kwargs)
        tensor = output if isinstance(output, Tensor) else output[0]
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


def joints_of(model: Any) -> dict[int, nn.Module]:
    """The modules of a UNet whose output goes up into the computed stages, by their number: those with an upsampler."""
    blocks = getattr(model, "up_blocks", None) or getattr(model, "output_blocks", ())
    joints = [block for block in blocks if getattr(block, "upsamplers", None) or has_upsampler(block)]
    return dict(enumerate(reversed(joints), 1))


def has_upsampler(block: nn.Module) -> bool:
    return any(type(part).__name__ == "Upsample" for part in block.modules())


@contextmanager
def in_place_of_forward(forward: ByHand) -> Iterator[None]:
    model, joints = forward.model, joints_of(forward.model)
    cuts = {STAGES[letter] for letter in forward.word if letter in STAGES}
    hooks = [joints[number].register_forward_hook(forward.at_joint(number)) for number in cuts]
    model.forward = forward
    try:
        yield
    finally:
        del model.forward
        for hook in hooks:
            hook.remove()
