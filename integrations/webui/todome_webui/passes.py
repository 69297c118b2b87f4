"""One sampling pass: the first, the hires pass, or img2img."""

import threading
from collections.abc import Callable
from typing import Any

from todome import NothingToReduce
from todome.levers.lever import TokenLever

from . import a1111, forge
from .report import Report, latest


class Running(threading.local):
    """The pass that this thread is making."""

    current: "Pass | None" = None


running = Running()


class Pass:
    """Reduces from the moment the sampler starts until it ends, be it with an error.

    It stands in for the sampler's `launch_sampling`, once: an error there ends the generation and is shown, where the
    webui would only note one in a script; and nothing can be left on a model afterwards.
    """

    def __init__(self, p: Any, title: str, wanted: Callable[[], TokenLever]) -> None:
        self.p, self.sampler, self.title, self.wanted = p, p.sampler, title, wanted
        self.sd_model: Any = None
        self.reduced: a1111.ReducedModel | forge.ReducedModel | None = None
        self.report: Report | None = None
        known = vars(self.sampler).get("launch_sampling")
        self.replaced = known.replaced if isinstance(known, Pass) else known  # Forge asks twice before a hires pass
        self.sampler.launch_sampling = self

    def __call__(self, steps: int, sample: Callable[[], Any]) -> Any:
        self.step_aside()
        try:
            self.begin()
            running.current = self
            return self.sampler.launch_sampling(steps, sample)
        finally:
            running.current = None
            self.end()

    def step_aside(self) -> None:
        if self.replaced is None:
            del self.sampler.launch_sampling
        else:
            self.sampler.launch_sampling = self.replaced

    def begin(self) -> None:
        self.sd_model, lever = self.p.sd_model, self.wanted()
        host = forge if hasattr(self.sd_model, "forge_objects") else a1111
        try:
            self.reduced = host.ReducedModel(self.sd_model, lever)
            self.report = Report(self.title, lever)
        except NothingToReduce as reason:
            self.tell([f"{self.title}: dense. {reason}"], dense=True)

    def at(self, denoiser: Any) -> None:
        """The sampler is about to call the model, which may be another one now: the refiner."""
        if self.p.sd_model is not self.sd_model:
            self.end()
            self.begin()
        if self.reduced is not None and self.report is not None:
            calls = max(1, denoiser.total_steps // denoiser.steps)  # in one step: two of a second-order sampler
            step = min(denoiser.step // calls, denoiser.steps - 1)
            self.reduced.at(step, denoiser.steps)
            self.report.note_step(step, denoiser.steps)

    def end(self) -> None:
        if self.reduced is not None and self.report is not None:
            levels, self.reduced = self.reduced.remove(), None
            self.tell(self.report.lines(levels), dense=not self.report.reduced(levels))

    def tell(self, lines: list[str], dense: bool) -> None:
        """In the log, in the accordion, and, where nothing was reduced, under the picture."""
        for line in lines:
            print(f"todome: {line}")
            latest.add(line)
            if dense:
                self.p.comment(f"todome: {line}")


def follow(params: Any) -> None:
    """Tells the pass that is running where it is, by the sampler's own count."""
    if running.current is not None:
        running.current.at(params.denoiser)
