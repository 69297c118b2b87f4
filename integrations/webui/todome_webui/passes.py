"""One sampling pass: the first, the hires pass, or img2img."""

from collections.abc import Callable
from typing import Any

from todome import NothingToReduce
from todome.reductions import Reduction

from . import a1111, forge


class Pass:
    """Reduces from the moment the sampler starts until it ends, be it with an error.

    It stands in for the sampler's `launch_sampling`, once: an error there ends the generation and is shown, where the
    webui would only note one in a script; and nothing can be left on a model afterwards.
    """

    running: "Pass | None" = None

    def __init__(self, p: Any, title: str, wanted: Callable[[], Reduction]) -> None:
        self.p, self.sampler, self.title, self.wanted = p, p.sampler, title, wanted
        self.sd_model: Any = None
        self.told = False
        self.reduced: a1111.ReducedModel | forge.ReducedModel | None = None
        known = vars(self.sampler).get("launch_sampling")
        self.replaced = known.replaced if isinstance(known, Pass) else known  # Forge asks twice before a hires pass
        self.sampler.launch_sampling = self

    def __call__(self, steps: int, sample: Callable[[], Any]) -> Any:
        self.step_aside()
        try:
            self.begin()
            Pass.running = self
            return self.sampler.launch_sampling(steps, sample)
        finally:
            Pass.running = None
            self.end()

    def step_aside(self) -> None:
        if self.replaced is None:
            del self.sampler.launch_sampling
        else:
            self.sampler.launch_sampling = self.replaced

    def begin(self) -> None:
        self.sd_model, self.told = self.p.sd_model, False
        host = forge if hasattr(self.sd_model, "forge_objects") else a1111
        reduction = self.wanted()
        try:
            self.reduced = host.ReducedModel(self.sd_model, reduction, self.tell)
        except NothingToReduce as reason:
            self.tell(f"dense. {reason}")
            self.p.comment(f"Token Downsampling: {self.title} is dense. {reason}")

    def at(self, denoiser: Any) -> None:
        """The sampler is about to call the model, which may be another one now: the refiner."""
        if self.p.sd_model is not self.sd_model:
            self.end()
            self.begin()
        if self.reduced is not None:
            calls = max(1, denoiser.total_steps // denoiser.steps)  # in one step: two of a second-order sampler
            self.reduced.at(min(denoiser.step // calls, denoiser.steps - 1), denoiser.steps)

    def end(self) -> None:
        if self.reduced is not None:
            self.reduced.remove()
            self.reduced = None
            if not self.told:
                self.tell("nothing was reduced")

    def tell(self, line: str) -> None:
        self.told = True
        print(f"todome: {self.title}: {line.removeprefix('todome: ')}")


def follow(params: Any) -> None:
    """Tells the pass that is running where it is, by the sampler's own count."""
    if Pass.running is not None:
        Pass.running.at(params.denoiser)
