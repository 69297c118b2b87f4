"""Tuning on the page: what a visitor asks for, the measurement in the thread that draws, what is seen of it."""

import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from ...plan import Plan
from ..generate import Settings
from ..measuring.evaluation import FLOWERS, plan_for
from ..pipelines import EMBEDDED, denoiser
from ..tuning.drawings import decibels
from ..tuning.goal import Goal
from ..tuning.layers import DENSE
from ..tuning.progress import Progress
from ..tuning.search import LEAST, Search, Trial
from ..tuning.tuner import carry_out, prompts_apart
from .form import Extras, Form, Offer
from .limits import Limits, check_choice, check_number, check_text
from .models import Models
from .worker import Job, Measured, Opening

AIMS = ("close", "fast")
KEEP, FASTER, MINUTES = (25.0, 60.0), (1.05, 3.0), (0.2, 60.0)
CALIBRATION, HELD_OUT = 1, 4  # pictures: fewer than in the command, for others wait
EXPECTED = range(24, 62, 2)  # dB for which the expected speed is shown


class TuneForm(NamedTuple):
    """Values of the controls of the tab, in the order in which the page sends them. None of them is to be trusted."""

    aim: Any = "close"
    keep: Any = 40
    faster: Any = 1.2
    minutes: Any = 5
    prompts: Any = ""

    def order(self, form: Form, limits: Limits, base: Settings, offer: Offer) -> "TuneOrder":
        """What to tune, checked. Size, steps, model and LoRA are those of the tab for drawing."""
        close = check_choice("aim", self.aim, AIMS, ", ".join(AIMS)) == "close"
        keep, faster = check_number("closeness", self.keep, *KEEP), check_number("speed", self.faster, *FASTER)
        minutes = check_number("minutes", self.minutes, MINUTES[0], limits.minutes)
        lines = check_text("prompts", self.prompts, limits.prompt * (CALIBRATION + HELD_OUT)).splitlines()
        settings = form._replace(method="dense", prompt="").settings(limits, base, offer)
        prompts = [line.strip() for line in lines if line.strip()] or list(
            FLOWERS if settings.model == EMBEDDED else ()
        )
        if len(set(prompts)) < 2:
            raise ValueError("Prompts are missing: write at least two, on a line each. Some are held out to check.")
        goal = Goal(keep) if close else Goal(faster=faster)
        return TuneOrder(settings, goal, tuple(prompts), minutes, form.extras(offer, None))


class TuneOrder(NamedTuple):
    """What is to be tuned: the settings of a dense picture, the goal, what to draw, the time there is, and a LoRA."""

    settings: Settings
    goal: Goal
    prompts: tuple[str, ...]
    minutes: float
    extras: Extras


class LayerBar(NamedTuple):
    """One layer: the share of a step's time that fewer keys save there, and its share of the largest change."""

    name: str
    saves: float
    matters: float | None  # None where it was not measured


class PlanPoint(NamedTuple):
    """A plan in the plane of speed and closeness."""

    speedup: float
    psnr: float


class TuneState(NamedTuple):
    """How far a tuning is, and what is known."""

    said: str = ""
    done: int = 0
    steps: int = 1
    left: float | None = None  # seconds
    layers: tuple[LayerBar, ...] = ()
    drawn: tuple[PlanPoint, ...] = ()
    expected: tuple[PlanPoint, ...] = ()


class Tuned(NamedTuple):
    """A finished tuning."""

    order: TuneOrder
    plan: Plan
    state: TuneState

    @property
    def control(self) -> tuple[int, PlanPoint] | None:
        """Dense steps that are about as fast, and where that is in the plane."""
        found = self.plan.measured.get("control")
        return found and (found["steps"], PlanPoint((self.order.settings.steps or 1) / found["steps"], found["psnr"]))


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
        points = tuple(PlanPoint(trial.speedup, decibels(trial.error)) for trial in search.trials)
        expected = expected_points(search) if search.trials else ()
        self.tell(layers=layer_bars(search), drawn=points, expected=expected)

    def tell(self, **changes: Any) -> None:
        self.job.check_stop()
        rest, steps = self.limit - (time.monotonic() - self.began), changes.get("steps", self.state.steps)
        left = None if self.pace is None else max(0.0, min(self.pace * (steps - self.drawn), rest))
        self.state = self.state._replace(done=min(self.drawn, steps), left=left, **changes)
        self.job.events.put(Measured(self.state))


def layer_bars(search: Search) -> tuple[LayerBar, ...]:
    """Of the layers that can save something, in the order of the model."""
    levels, worth = search.layers.levels, search.candidates()
    found = {name: search.sensitivity.error(name, (2, 2)) for name in levels}
    errors = {name: error for name, error in found.items() if error is not None}
    most = max([LEAST, *errors.values()])
    return tuple(
        LayerBar(name, search.times.most(level), errors[name] / most if name in errors else None)
        for name, level in levels.items()
        if name in worth or search.times.most(level) > 0
    )


def expected_points(search: Search) -> tuple[PlanPoint, ...]:
    """The fastest choices as far as single layers tell, by the scale of the plan that was drawn last."""
    last: Trial = search.trials[-1]
    scale = last.error / max(search.sensitivity.total(last.choices), LEAST)
    found: dict[float, float] = {}
    for keep in EXPECTED:
        choices = search.fastest(10 ** (-keep / 10) / scale)
        if any(factors != DENSE for factors in choices.values()):
            error = scale * search.sensitivity.total(choices)
            found[round(search.times.speedup(search.layers, choices), 3)] = decibels(error)
    return tuple(PlanPoint(*one) for one in sorted(found.items()))


def tune_model(order: TuneOrder, folder: Path, models: Models, job: Job) -> Tuned:
    """Measures in the thread that draws. A stopped run ends after the call of the model that is being computed."""
    settings, extras = order.settings, order.extras
    if not models.is_open(settings.model):
        job.events.put(Opening(settings.model))
    pipe = models.pipeline(settings, extras)
    drawn = plan_for(
        settings.model,
        prompts_apart(order.prompts, CALIBRATION, HELD_OUT),
        sizes=(settings.size,),
        steps=settings.steps,
        guidance=settings.guidance,
        scheduler=settings.scheduler,
        pictures=CALIBRATION + HELD_OUT,
        loras=[*settings.loras, *([f"{extras.lora}:{extras.weight:g}"] if extras.lora else [])],
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


def plan_file(plan: Plan) -> str:
    """The text of the plan's file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        plan.save(path)
        return path.read_text(encoding="utf-8")
