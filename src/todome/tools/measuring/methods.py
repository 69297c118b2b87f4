"""Methods that are measured side by side, by the names people type.

dense            dense:20                         the control: fewer dense steps
todome           todome:2    todome:4,2    todome:2,stop=0.8    todome:2,phase=random
todome:plan=plan.json                            what `todome tune` wrote
todo:2           ToDo: downsampling that always keeps the same keys
tome:0.5         ToMe: token merging, todome's own
tomesd:0.5       ca-tome:0.7     deepcache:3       the packages of others, where they are installed
todome:2+deepcache                                 one on top of the other
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from typing import Any

from ...errors import invalid_value
from ...levers.downsample import Downsample
from ...levers.layers import DownsampleLayers, PlannedLayer
from ...levers.lever import LevelLever, TokenLever, one_of_each, setting_at
from ...levers.merge import Merge
from ...levers.plan import LeverOrPlan, Plan
from ...patch import apply, remove
from ..metadata import reduction_to_dict
from ..pipelines import EMBEDDED
from .peers import PEERS, SAME_STEPS, Peer, StepKind

EXAMPLES = "dense, dense:20, todome, todome:2, todome:4,2, todo:2, tome:0.5, tomesd:0.5, ca-tome:0.7, deepcache:3"
REDUCTIONS: dict[str, LevelLever] = {
    "todome": Downsample("auto"),
    "todo": Downsample("auto", phase="fixed"),
    "tome": Merge(0.5),
}


def usual_methods(model: Any) -> tuple[str, ...]:
    """What is measured unless told otherwise; "auto" would leave the small pictures of the embedded model dense."""
    return ("todome:2", "todo:2", "tome:0.5") if model == EMBEDDED else ("todome", "todo", "tome:0.5")


@dataclass(frozen=True)
class Method:
    """One way to run a model: dense, with a reduction, with the code of others, or with both."""

    name: str  # as it was typed
    steps: int | None = None  # of the control; None leaves the run's own
    reduction: LeverOrPlan | None = None
    peers: tuple[Peer, ...] = ()
    plan: str | None = None  # the file of a plan, which is read when it is needed: reports can do without

    @property
    def is_dense(self) -> bool:
        return self.name == "dense"

    @property
    def title(self) -> str:
        """The name as a table shows it."""
        if self.steps:
            return f"dense, {self.steps} step{'s' * (self.steps != 1)}"
        return self.name.replace(":", " ").replace(",", ", ")

    def loaded(self) -> "Method":
        """The same with the plan of its file, where it has one that was not read yet."""
        return self if self.plan is None or self.reduction else replace(self, reduction=Plan.load(self.plan))

    @property
    def plan_digest(self) -> str:
        """Of what its plan does, whatever was measured with it. The plan must be loaded."""
        text = json.dumps((reduction_to_dict(self.reduction) or {})["levers"], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @contextmanager
    def on(self, target: Any) -> Iterator[Sequence[StepKind]]:
        """Puts it on a pipeline or a model, and takes it off whatever happens. Yields the kinds of steps it has."""
        reduction = self.loaded().reduction
        with ExitStack() as stack:
            kinds: Sequence[StepKind] = SAME_STEPS
            for peer in self.peers:
                kinds = stack.enter_context(peer.on(target))
            if reduction is not None:
                stack.enter_context(apply(target, reduction))
            parts = plan_parts(reduction) if isinstance(reduction, Plan) else []
            if len(parts) > 1:  # for what times single calls: beginning a kind of step puts that part on
                stack.callback(remove, target)
                kinds = [StepKind(share, partial(apply, target, part)) for share, part in parts]
            yield kinds


def plan_parts(plan: Plan) -> list[tuple[float, Plan]]:
    """The parts of a run in which the factors of a plan change: the share of each, and a plan of its factors alone."""
    cuts = sorted({0.0, 1.0, *(until for layer in plan.layers.values() for until, _ in layer.pieces)})
    return [(end - begin, plan_after(plan, begin)) for begin, end in pairwise(cuts)]


def plan_after(plan: Plan, done: float) -> Plan:
    """A plan that has, over the whole run, the factors that another one has after a fraction of the steps."""
    layers = {
        name: PlannedLayer.flat(setting_at(layer.pieces, done), layer.tokens, layer.width)
        for name, layer in plan.layers.items()
    }
    levers = [replace(one, layers=layers) if isinstance(one, DownsampleLayers) else one for one in plan.levers]
    return Plan(tuple(levers))


def is_windowed(reduction: LeverOrPlan | None) -> bool:
    """Whether it is off in some steps of a run."""
    levers = one_of_each((reduction,)) if reduction else ()
    return any(isinstance(one, TokenLever) and (one.start, one.stop) != (0, 1) for one in levers)


def method_named(name: str) -> Method:
    """The method that a name such as "todome:4,2,stop=0.8+deepcache:3" means."""
    method = Method(name)
    for part in name.split("+"):
        kind, _, settings = part.partition(":")
        method = with_part(method, kind.strip(), [text.strip() for text in settings.split(",") if text.strip()])
    if method.steps is not None and (method.reduction or method.plan or method.peers):
        raise invalid_value("method", name, "dense:STEPS on its own", "Leave out the rest: it is the control")
    return method


def with_part(method: Method, kind: str, settings: list[str]) -> Method:
    reduces = kind in REDUCTIONS and method.reduction is None and method.plan is None
    if not reduces and not (kind in {"dense", *PEERS} and len(settings) <= 1):
        raise invalid_value("method", method.name, EXAMPLES, "Join several with +, each setting with a comma")
    if reduces and kind == "todome" and any(text.startswith("plan=") for text in settings):
        return replace(method, plan=plan_file(method.name, settings))
    if reduces:
        return replace(method, reduction=reduction_named(method.name, REDUCTIONS[kind], settings))
    numbers = [number(method.name, text) for text in settings]
    if kind in PEERS:
        return replace(method, peers=(*method.peers, PEERS[kind](*numbers)))
    return replace(method, steps=int(numbers[0]) if numbers else None)


def plan_file(name: str, settings: list[str]) -> str:
    if len(settings) > 1:
        remedy = "A plan has all settings: leave others out"
        raise invalid_value("method", name, "todome:plan=FILE, a name without commas, on its own", remedy)
    return settings[0].removeprefix("plan=")


def reduction_named(name: str, base: LevelLever, settings: list[str]) -> LevelLever:
    """A reduction with its settings: numbers are for its levels, the rest are fields such as stop=0.8."""
    given = dict(text.split("=", 1) for text in settings if "=" in text)
    levels = [text for text in settings if "=" not in text]
    known = {field.name for field in fields(base)}  # pyright: ignore[reportArgumentType]
    for field in given.keys() - known:
        raise invalid_value("method", name, f"the fields {', '.join(sorted(known))}", f"{field} is none of them")
    values: dict[str, Any] = {field: text if field == "phase" else number(name, text) for field, text in given.items()}
    if "stride" in values:
        values["stride"] = (values["stride"],) * 2
    if levels:
        numbers = tuple("auto" if text == "auto" else number(name, text) for text in levels)
        values[base.level_field] = numbers[0] if len(numbers) == 1 else numbers
    return replace(base, **within_stride(values))  # pyright: ignore[reportArgumentType, reportCallIssue]


def within_stride(values: dict[str, Any]) -> dict[str, Any]:
    """Papers write the largest ratios rounded: 0.89 with a stride of 3 means 8/9."""
    most = Merge(0, stride=values["stride"]).most() if "stride" in values else 0
    return {**values, "ratio": most} if values.get("ratio") == round(most, 2) != 0 else values


def number(name: str, text: str) -> float:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise invalid_value(
            "method", name, f"numbers after the colon, as in {EXAMPLES}", f"{text!r} is not a number"
        ) from None


def methods_named(names: Sequence[str]) -> list[Method]:
    """Several methods, dense first, none twice."""
    methods = [method_named(name) for name in dict.fromkeys(["dense", *names])]
    if len(methods) < 2:
        raise invalid_value("methods", list(names), "dense and at least one more", f"Choose from {EXAMPLES}")
    return methods
