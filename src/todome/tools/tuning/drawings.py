"""Drawings with a plan and dense, from the same prompts and noise, and how much they differ. An engine draws them."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...levers.plan import LeverOrPlan, Plan
from ..engines import Engine, Place
from ..engines.here import Here
from ..measuring.drawing import PictureMaker
from ..measuring.methods import Method
from ..schedulers import use_scheduler
from .records import Records

DENSE = Method("dense")
CLOSEST = 1e-10  # mean squared error of pictures that are called the same: 100 dB


class Drawing(NamedTuple):
    """Pictures to be drawn with a method, and dense in so many steps to compare them with."""

    method: Method
    numbers: range  # of the pictures
    steps: int
    dense_steps: int
    output: str  # "pt" for pictures, "latent" for latents


class ErrorWorker:
    """Worker that draws with a method and dense, and says how much each picture differs."""

    def __init__(self, maker: PictureMaker) -> None:
        self.maker = maker
        self.dense: dict[Drawing, Tensor] = {}

    def open(self, place: Place) -> None:
        self.maker = self.maker.at(place.device)

    def close(self) -> None:
        """The pipeline stays open, for the next drawings."""

    def work(self, item: tuple[int, Drawing]) -> tuple[int, Drawing, list[float]]:
        """The mean squared difference of each picture, or of its latents."""
        number, drawing = item
        difference = self.draw(drawing) - self.drawn_dense(drawing)
        if drawing.output == "pt":
            difference = difference.clamp(-1, 1)
        return number, drawing, difference.square().mean(dim=(1, 2, 3)).tolist()

    def drawn_dense(self, drawing: Drawing) -> Tensor:
        dense = drawing._replace(method=DENSE, steps=drawing.dense_steps)
        if dense not in self.dense:
            self.dense[dense] = self.draw(dense)
        return self.dense[dense]

    def draw(self, drawing: Drawing) -> Tensor:
        """(pictures, channels, height, width), on the CPU."""
        maker, method = self.maker, drawing.method
        (size,) = maker.plan.sizes
        settings = maker.settings(size, method, drawing.numbers, drawing.steps)
        with use_scheduler(maker.pipe, maker.plan.scheduler), method.on(maker.pipe):
            return maker.call(settings, drawing.output).float().cpu()


class Drawings:
    """The drawings of a tuning: latents of cheap runs to measure layers with, pictures to choose and check plans."""

    def __init__(
        self, maker: PictureMaker, calibration: range, held_out: range, cheap_steps: int, engine: Engine | None = None
    ) -> None:
        self.maker, self.calibration, self.held_out, self.cheap_steps = maker, calibration, held_out, cheap_steps
        self.others = range(held_out.stop, held_out.stop + len(held_out))  # which choose no plan: they check it
        self.engine, self.worker = engine or Here([str(maker.device)]), ErrorWorker(maker)
        self.on_steps: Callable[[int], Any] = lambda steps: None  # told how many steps were drawn

    def batches(self, drawing: Drawing) -> list[Drawing]:
        most, numbers = self.maker.plan.batch, drawing.numbers
        return [drawing._replace(numbers=numbers[at : at + most]) for at in range(0, len(numbers), most)]

    def errors(self, wanted: Sequence[Drawing]) -> Iterator[tuple[int, list[float]]]:
        """The number of each drawing and the errors of its pictures, when all are there. Closing it ends the work."""
        parts = [self.batches(drawing) for drawing in wanted]
        found: list[dict[Drawing, list[float]]] = [{} for _ in wanted]
        items = [(number, part) for number, batches in enumerate(parts) for part in batches]
        run: Any = self.engine.run(self.worker, items, "todome tune")
        with closing(run) as results:
            for number, part, errors in results:
                found[number][part] = errors
                self.on_steps(part.steps * len(part.numbers))
                if len(found[number]) == len(parts[number]):
                    yield number, [error for one in parts[number] for error in found[number][one]]

    def latent_errors(self, plans: Sequence[Plan]) -> Iterator[tuple[int, float]]:
        """The mean squared difference of latents that each plan makes, in cheap runs."""
        common: Any = (self.calibration, self.cheap_steps, self.cheap_steps, "latent")
        for number, errors in self.errors([Drawing(Method("plan", reduction=plan), *common) for plan in plans]):
            yield number, statistics.fmean(errors)

    def picture_errors(
        self, reduction: LeverOrPlan | None, steps: int | None = None, numbers: range | None = None
    ) -> list[float]:
        """The mean squared difference of each held-out picture, with a plan, another reduction, or fewer steps."""
        whole = self.maker.plan.steps
        wanted = Drawing(Method("plan", reduction=reduction), numbers or self.held_out, steps or whole, whole, "pt")
        ((_, errors),) = self.errors([wanted])
        return errors

    def dense_latents(self) -> Tensor:
        """Of the pictures to calibrate with, drawn here."""
        wanted = Drawing(DENSE, self.calibration, self.cheap_steps, self.cheap_steps, "latent")
        return torch.cat([self.worker.drawn_dense(part) for part in self.batches(wanted)])


def decibels(error: float) -> float:
    return -10 * math.log10(max(error, CLOSEST))


def closeness(errors: Sequence[float]) -> dict[str, Any]:
    """dB of the mean error, of the quarter of pictures below and above, and of the worst picture."""
    each = sorted(map(decibels, errors))
    low, _, high = statistics.quantiles(each, n=4, method="inclusive") if len(each) > 1 else each * 3
    found = {"psnr": decibels(statistics.fmean(errors)), "worst": each[0], "low": low, "high": high}
    return {name: round(value, 2) for name, value in found.items()} | {"pictures": len(errors)}


class Control(NamedTuple):
    """A dense run of fewer steps, about as fast as a plan, on the same held-out prompts."""

    steps: int
    psnr: float

    def verdict(self, psnr: float) -> str:
        """Which of the two is closer to the dense run of all steps, and by how much."""
        difference = abs(psnr - self.psnr)
        if self.psnr > psnr:
            return f"{self.steps} dense steps are closer at that speed, by {difference:.1f} dB: take these instead."
        return f"{self.steps} dense steps are as fast, and {difference:.1f} dB further off."


def draw_control(drawings: Drawings, records: Records, speedup: float) -> Control | None:
    """As many dense steps as take the time of a plan; None where that is all of them."""
    whole = drawings.maker.plan.steps
    steps = max(1, round(whole / speedup))
    if steps >= whole:
        return None
    errors = records.measure({"picture errors, dense steps": steps}, lambda: drawings.picture_errors(None, steps))
    return Control(steps, round(decibels(statistics.fmean(errors)), 2))
