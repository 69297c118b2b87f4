"""HTML of a tuning: its progress, a bar for each layer, the plan as a picture of the UNet, speed against closeness."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...plan import Plan, PlannedLayer
from ..pipelines import format_size
from . import views
from .estimates import in_words
from .tuning import PlanPoint, Tuned, TuneState, plan_file

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 260, 44, 14, 14, 40  # of the plot, and its margins


class Chip(NamedTuple):
    """One layer in the picture of the UNet."""

    name: str
    factor: str
    about: str
    strength: float  # 0 where it is dense, 1 at factor 4 and above


class UNetRow(NamedTuple):
    """One level, on the way down and up; the middle has a row of its own."""

    title: str
    down: list[Chip]
    up: list[Chip]
    depth: int
    middle: bool = False


class Mark(NamedTuple):
    """A point of the plot, in its units."""

    x: float
    y: float
    label: str = ""
    kind: str = "drawn"


class Tick(NamedTuple):
    at: float
    text: str


class Plot(NamedTuple):
    """Speed against closeness, in the units of the drawing."""

    curve: str
    marks: list[Mark]
    across: list[Tick]
    upwards: list[Tick]
    goal: Mark | None  # a line through it: upright for a speed, level for a closeness


def progress(state: TuneState, said: str = "") -> str:
    left = "" if state.left is None else f"At most about {in_words(state.left)} left."
    bar = views.Bar("steps", f"{state.done} of {state.steps}", state.done, state.steps)
    return views.progress(said or state.said, left, [bar])


def layers(state: TuneState) -> str:
    most = max((bar.saves for bar in state.layers), default=0.0)
    return str(views.macros().tune_layers(state.layers, max(most, 1e-9))) if state.layers else ""


def result(tuned: Tuned) -> str:
    """The verdict, the plan, the plot, and the file."""
    order, found = tuned.order, tuned.plan.measured
    facts = [format_size(order.settings.size or ()).replace("x", " x "), f"{order.settings.steps} steps"]
    facts += [str(found.get("device", "")), str(order.goal)]
    shown = plot(tuned) if tuned.state.drawn else None
    rows, sizes = unet_rows(tuned.plan), (WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM)
    file = plan_file(tuned.plan)
    return str(views.macros().tune_result(found["verdict"], facts, figures(tuned), rows, shown, sizes, file))


def figures(tuned: Tuned) -> list[views.Figure]:
    found = tuned.plan.measured
    if "psnr" not in found:
        return []
    spread = f"the worst of {found['pictures']} pictures has {found['worst']:.1f} dB"
    if "others" in found:
        spread += f"; {found['others']['pictures']} other pictures have {found['others']['psnr']:.1f} dB"
    rows = [
        views.Figure("Close", f"{found['psnr']:.1f} dB", f"to full attention, of the mean error; {spread}"),
        views.Figure("Speed", f"{found['speedup']:.2f}x", "of a step with full attention, timed here"),
    ]
    if tuned.control is not None:
        steps, point = tuned.control
        rows.append(views.Figure("Control", f"{point.psnr:.1f} dB", f"with {steps} dense steps, which are as fast"))
    return rows


def unet_rows(plan: Plan) -> list[UNetRow]:
    """Levels from the finest to the coarsest, and the middle below."""
    chips: dict[tuple[str, int], list[Chip]] = {}
    tokens: dict[int, int] = {}
    for name, layer in plan.layers.items():
        way, level, _ = name.split(".")
        chips.setdefault((way, int(level)), []).append(chip(name, layer))
        tokens[int(level)] = layer.tokens
    rows = []
    for depth, level in enumerate(sorted(tokens)):
        down, up = chips.get(("down", level), []), chips.get(("up", level), [])
        if down or up:
            rows.append(UNetRow(f"level {level}, {tokens[level]} tokens", down, up, depth))
    middle = [chip for (way, _), several in chips.items() if way not in ("down", "up") for chip in several]
    return [*rows, UNetRow("middle", middle, [], len(rows), middle=True)] if middle else rows


def chip(name: str, layer: PlannedLayer) -> Chip:
    shown = f"{layer.factor:g}" if layer.factor == layer.later else f"{layer.factor:g}→{layer.later:g}"
    then = "" if layer.factor == layer.later else f" in the first half of the steps, then {layer.later:g}"
    reduced = max(layer.factor, layer.later) > 1
    about = f"{name}: factor {layer.factor:g}{then}" if reduced else f"{name}: full attention"
    mean = (layer.factor + layer.later) / 2
    return Chip(name, shown, about, min(1.0, (mean - 1) / 3))


def plot(tuned: Tuned) -> Plot:
    state, goal = tuned.state, tuned.order.goal
    own = PlanPoint(tuned.plan.measured.get("speedup", 1.0), tuned.plan.measured.get("psnr", 0.0))
    control = tuned.control
    points = [*state.drawn, *state.expected, *([control[1]] if control else [])]
    wanted = [goal.keep] if goal.keep is not None else []
    speeds, closeness = [1.0, *(p.speedup for p in points)], [*(p.psnr for p in points), *wanted]
    across, upwards = ticks(min(speeds), max(speeds), 0.05), ticks(min(closeness), max(closeness), 2)
    x, y = scale(across, LEFT, WIDTH - RIGHT), scale(upwards, HEIGHT - BOTTOM, TOP)
    marks = [Mark(x(p.speedup), y(p.psnr)) for p in state.drawn if (p.speedup, round(p.psnr, 2)) != own]
    if control is not None:
        marks.append(Mark(x(control[1].speedup), y(control[1].psnr), f"{control[0]} dense steps", "control"))
    if own.psnr:
        marks.append(Mark(x(own.speedup), y(own.psnr), "your plan", "chosen"))
    line = Mark(0, y(goal.keep)) if goal.keep is not None else Mark(x(goal.faster or 1), 0)
    inside = LEFT <= line.x <= WIDTH - RIGHT or line.x == 0
    return Plot(
        " ".join(f"{x(p.speedup):.1f},{y(p.psnr):.1f}" for p in state.expected),
        marks,
        [Tick(x(one), f"{one:g}x") for one in across],
        [Tick(y(one), f"{one:g}") for one in upwards],
        line if inside else None,
    )


def scale(steps: Sequence[float], first: float, last: float) -> Callable[[float], float]:
    low, high = steps[0], steps[-1]
    return lambda value: round(first + (value - low) / (high - low) * (last - first), 1)


def ticks(low: float, high: float, least: float) -> list[float]:
    """Round numbers from at most the lowest to at least the highest: about five of them."""
    step = least
    while (high - low) / step > 5:
        step *= 2 if f"{step:g}"[-1] != "2" else 2.5
    first = int(low // step)
    count = max(2, int(-(-high // step)) - first + 1)
    return [round((first + i) * step, 6) for i in range(count)]
