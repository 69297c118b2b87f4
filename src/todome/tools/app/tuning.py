"""Tuning on the page: what is asked for, the measurement in the thread that draws, what is known of it so far."""

import time
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ...levers.plan import Plan
from ..generate import Settings
from ..measuring.evaluation import FLOWERS, plan_for
from ..pipelines import EMBEDDED, denoiser
from ..tuning.drawings import decibels
from ..tuning.goal import Goal
from ..tuning.progress import Progress
from ..tuning.search import LEAST, Search
from ..tuning.tuner import carry_out, prompts_apart
from .drawing import Job
from .form import Form, Offer
from .limits import PROMPT, check_choice, check_number, check_text

AIMS = ("close", "fast")
KEEP, FASTER, MINUTES = (25.0, 60.0), (1.05, 3.0), (0.2, 60.0)
CALIBRATION, HELD_OUT = 1, 4  # pictures: fewer than in the command, as somebody is looking on


class TuneForm(NamedTuple):
    """Values of the controls of the tab, in the order in which the page sends them. None of them is to be trusted."""

    aim: Any = "close"
    keep: Any = 40
    faster: Any = 1.2
    minutes: Any = 5
    prompts: Any = ""

    def order(self, form: Form, offer: Offer) -> "TuneOrder":
        """What to tune, checked. Size and steps are those of the tab for drawing."""
        close = check_choice("aim", self.aim, AIMS) == "close"
        keep, faster = check_number("closeness", self.keep, *KEEP), check_number("speed", self.faster, *FASTER)
        minutes = check_number("minutes", self.minutes, *MINUTES)
        lines = check_text("prompts", self.prompts, 10 * PROMPT).splitlines()
        settings = form._replace(prompt="").settings(offer)
        own = FLOWERS if settings.model == EMBEDDED else ()
        prompts = [line.strip() for line in lines if line.strip()] or list(own)
        if len(set(prompts)) < 2:
            raise ValueError("Prompts are missing: write at least two, on a line each. Some are held out to check.")
        goal = Goal(keep) if close else Goal(faster=faster)
        return TuneOrder(settings, goal, tuple(prompts), minutes)


class TuneOrder(NamedTuple):
    """What is to be tuned: the settings of a dense picture, the goal, what to draw, and the time there is."""

    settings: Settings
    goal: Goal
    prompts: tuple[str, ...]
    minutes: float


class MeasuredLayer(NamedTuple):
    """One layer: the share of a step's time that fewer keys save there, and its share of the largest change."""

    name: str
    saves: float
    matters: float | None  # None where it was not measured


PlanPoint: TypeAlias = tuple[float, float, str]  # times as fast, dB, and which plan that is


class TuneState(NamedTuple):
    """How far a tuning is, and what is known."""

    said: str = ""
    done: int = 0
    steps: int = 1
    left: float | None = None  # seconds
    layers: tuple[MeasuredLayer, ...] = ()
    points: tuple[PlanPoint, ...] = ()


class Tuned(NamedTuple):
    """A finished tuning."""

    order: TuneOrder
    plan: Plan
    state: TuneState

    def points(self) -> list[PlanPoint]:
        """All plans that were drawn, the one that was found, and dense steps that are about as fast."""
        found, more = self.plan.evidence, []
        if "psnr" in found:
            more.append((found["speedup"], found["psnr"], "your plan"))
        if control := found.get("control"):
            speedup = (self.order.settings.steps or 1) / control["steps"]
            more.append((speedup, control["psnr"], f"{control['steps']} dense steps"))
        return [*self.state.points, *more]


class TuneReport(Progress):
    """Progress of a tuning as events of a job, which it also stops."""

    def __init__(self, minutes: float, job: Job) -> None:
        super().__init__(minutes, shown=False)
        self.job, self.state = job, TuneState("Timing a step of each level.")

    def expect(self, what: str, steps: int) -> None:
        super().expect(what, steps)
        said = {"layers": "Reducing one layer after the other.", "drawing plans": "Drawing plans on other prompts."}
        self.tell(said=said.get(what, self.state.said), steps=max(1, self.drawn + steps))

    def advance(self, steps: int) -> None:
        super().advance(steps)
        self.tell()

    def show(self, search: Search) -> None:
        drawn = tuple((trial.speedup, decibels(trial.error), "tried") for trial in search.trials)
        self.tell(layers=measured_layers(search), points=drawn)

    def tell(self, **changes: Any) -> None:
        self.job.check_stop()
        rest, steps = self.limit - (time.monotonic() - self.began), changes.get("steps", self.state.steps)
        left = None if self.pace is None else max(0.0, min(self.pace * (steps - self.drawn), rest))
        self.state = self.state._replace(done=min(self.drawn, steps), left=left, **changes)
        self.job.events.put(self.state)


def measured_layers(search: Search) -> tuple[MeasuredLayer, ...]:
    """Those that can save something, in the order of the model."""
    levels, worth = search.layers.levels, search.candidates()
    found = {name: search.sensitivity.error(name, (2, 2)) for name in levels}
    errors = {name: error for name, error in found.items() if error is not None}
    most = max([LEAST, *errors.values()])
    return tuple(
        MeasuredLayer(name, search.times.most(level), errors[name] / most if name in errors else None)
        for name, level in levels.items()
        if name in worth or search.times.most(level) > 0
    )


def tune_model(order: TuneOrder, folder: Path, pipe: Any, job: Job) -> Tuned:
    """Measures in the thread that draws. A stopped run ends after the call of the model that is being computed."""
    settings = order.settings
    drawn = plan_for(
        settings.model,
        prompts_apart(order.prompts, CALIBRATION, HELD_OUT),
        sizes=(settings.size,),
        steps=settings.steps,
        guidance=settings.guidance,
        scheduler=settings.scheduler,
        pictures=CALIBRATION + HELD_OUT,
        loras=settings.loras,
        vae=settings.vae,
    )
    report = TuneReport(order.minutes, job)
    watching = denoiser(pipe).register_forward_pre_hook(lambda *_: job.check_stop())
    try:
        plan = carry_out(pipe, drawn, order.goal, CALIBRATION, folder, report)
    finally:
        watching.remove()
    job.check_stop()
    return Tuned(order, plan, report.state)
