"""Values of the controls of the page, and what they ask for."""

from dataclasses import replace
from typing import Any, NamedTuple

from ...levers.downsample import Downsample
from ...levers.merge import Merge
from ...levers.plan import LeverOrPlan, Plan
from ..generate import Settings
from ..schedulers import SCHEDULERS
from .limits import GUIDANCE, PICTURES, SEEDS, SMALLEST, check_choice, check_number, check_text, check_whole
from .start import Start

COMPARED = ("todome", "ToDo", "ToMe")
METHODS = (*COMPARED, "plan", "dense")  # as the page sends them
NO_PLAN = "You have no plan yet. Make one on the Tune tab, or choose another method."
STRIDES = ("2", "3", "4")
LARGEST_FACTOR = 16.0
OWN = ""  # value for the model's own scheduler


class Order(NamedTuple):
    """What a run is to draw: each of these pictures with full attention and with every reduction."""

    alone: tuple[Settings, ...]  # with full attention, one for each seed
    reductions: tuple[LeverOrPlan, ...]
    start: Start | None = None  # that they start from
    strength: float = 1.0  # how far they may go from it

    def pictures(self) -> list[Settings]:
        """Settings of all pictures in the order in which they are drawn."""
        return [replace(one, reduction=way) for one in self.alone for way in (None, *self.reductions)]


class Offer(NamedTuple):
    """What the controls can ask for."""

    base: Settings  # model, device and dtype
    side: int  # the most pixels on the longer side
    steps: int  # the most of one picture


class Form(NamedTuple):
    """Values of all controls, in the order in which the page sends them. None of them is to be trusted."""

    prompt: Any = ""
    method: Any = "todome"
    auto: Any = False  # factor by the size
    factor: Any = 2
    factor2: Any = 1  # of level 2; 1 is full attention
    ratio: Any = 0.5
    stride: Any = "2"
    start: Any = 0.0
    stop: Any = 1.0
    width: Any = 256
    height: Any = 256
    steps: Any = 25
    guidance: Any = 3.0
    seed: Any = 0
    scheduler: Any = OWN
    negative: Any = ""
    count: Any = 1
    strength: Any = 0.6

    def order(
        self, offer: Offer, begin: Start | None = None, plan: Plan | None = None, *, compare: bool = False
    ) -> Order:
        """What to draw, checked. With `compare` the picture of one seed, with every method that the page has."""
        first = self.settings(offer)
        count = 1 if compare else check_whole("pictures", self.count, 1, PICTURES)
        methods = COMPARED if compare else (self.method,)
        reductions = [self._replace(method=method).reduction(plan) for method in methods]
        alone = tuple(replace(first, seed=first.seed + more) for more in range(count))
        strength = float(check_number("strength", self.strength, 0.05, 1)) if begin else 1.0
        return Order(alone, tuple(way for way in reductions if way is not None), begin, strength)

    def settings(self, offer: Offer) -> Settings:
        """Settings of the picture with full attention, checked. Model, device and dtype are those of the base."""
        return replace(
            offer.base,
            prompt=check_text("prompt", self.prompt),
            negative=check_text("negative prompt", self.negative),
            seed=check_whole("seed", self.seed, 0, SEEDS - PICTURES),
            size=(
                check_whole("width", self.width, SMALLEST, offer.side),
                check_whole("height", self.height, SMALLEST, offer.side),
            ),
            steps=check_whole("steps", self.steps, 1, offer.steps),
            guidance=float(check_number("guidance", self.guidance, 0, GUIDANCE)),
            scheduler=check_choice("scheduler", self.scheduler, (OWN, *SCHEDULERS)) or None,
            reduction=None,
        )

    def reduction(self, plan: Plan | None = None) -> LeverOrPlan | None:
        method = check_choice("method", self.method, METHODS)
        if method == "dense":
            return None
        if method == "plan":
            if plan is None:
                raise ValueError(NO_PLAN)
            return plan
        window: dict[str, Any] = {
            "start": check_number("start", self.start, 0, 1),
            "stop": check_number("stop", self.stop, 0, 1),
        }
        if method == "ToMe":
            stride = int(check_choice("stride", self.stride, STRIDES))
            return Merge(check_number("ratio", self.ratio, 0, 1), stride=(stride, stride), **window)
        return Downsample(self.factors(), phase="fixed" if method == "ToDo" else "dither", **window)

    def factors(self) -> Any:
        if check_choice("automatic factor", self.auto, (True, False)):
            return "auto"
        factor = check_number("factor", self.factor, 1, LARGEST_FACTOR)
        deeper = check_number("factor of level 2", self.factor2, 1, LARGEST_FACTOR)
        return factor if deeper == 1 else (factor, deeper)
