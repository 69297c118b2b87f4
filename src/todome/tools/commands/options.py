"""Options that several commands take: their help, the values that their words mean, and groups of them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from ...levers.downsample import Downsample
from ...levers.merge import Merge
from ...levers.plan import LeverOrPlan, Plan
from ...tokens.grid import Phase
from ..devices import DTYPES
from ..pipelines import EMBEDDED, Size
from ..schedulers import SCHEDULERS
from ..settings import Settings

drawing_option = partial(typer.Option, rich_help_panel="What to draw")
model_option = partial(typer.Option, rich_help_panel="Which model")
reduction_option = partial(typer.Option, rich_help_panel="How much to reduce")
measure_option = partial(typer.Option, rich_help_panel="What to measure")
machine_option = partial(typer.Option, rich_help_panel="Machine and files")


def by_default(what: object) -> str:
    return rf" [dim]\[default: {what}][/dim]"


OF_THE_MODEL = by_default("the model's")
SCHEDULER = f"One of {', '.join(SCHEDULERS)}." + OF_THE_MODEL
GUIDANCE = "How closely to follow the prompt." + OF_THE_MODEL
FACTOR = "Attend to 1 token in F x F at level 1, the finest; 4,2 is for levels 1 and 2; auto goes by the size."
FACTORS = FACTOR + by_default("2 for the embedded model, else auto")
PLAN = "A factor for each layer, as todome tune wrote it; all that it was measured with but the model is taken too."
RATIOS = "Merge this share of the tokens (ToMe) instead; 0.5,0.3 is for levels 1 and 2."
PHASES = (
    "Which token of each F x F: another at every step (dither), always the same (fixed, ToDo), or a random one."
    + by_default("dither")
)
SIZE = "In pixels: 512, or 512x768 for WIDTHxHEIGHT."
SIZES = "Sizes in pixels: 512, or 512x768 for WIDTHxHEIGHT."
METHODS = (
    "todome, todome:2, todome:4,2, todome:plan=FILE, todo:2, tome:0.5, tomesd:0.5, ca-tome, deepcache:3, "
    "todome:2+deepcache."
)
USUAL_METHODS = METHODS + by_default("todome todo tome")
MODEL = "A diffusers folder, a .safetensors checkpoint (SD 1.x, 2.x, SDXL), or a hub id."
SUBJECT = f"{MODEL} Or sd15, sd21, sdxl, animatediff, svd: UNets of these shapes with random weights."
LORA = "Add a LoRA (.safetensors), as it is or times WEIGHT. May be given several times."
VAE = "Decode with another VAE: a .safetensors file or a folder." + OF_THE_MODEL
START = "Full attention before this share of the steps." + by_default(0)
STOP = "Full attention after this share of the steps; 0.8 draws the last fifth with it." + by_default(1)
DENSE = "Full attention: reduce nothing (dense)."
SEED = "The same seed gives the same picture." + by_default(0)
DEVICE = "auto (a GPU if there is one), cpu, cuda, mps, ..."
DTYPE = f"auto (float16 on a GPU, float32 on a CPU), {', '.join(DTYPES)}."
RAY = "On a Ray cluster: its address, or none for one on this machine (or RAY_ADDRESS)."
WORKERS = "With --ray: how many, or 1-64 for a cluster that grows." + by_default("one for each GPU")
SHARE = "With --ray: the share of a GPU that each worker gets; 0.5 puts two on one."
Loras = Annotated[list[str] | None, model_option("--lora", metavar="FILE[:WEIGHT]", help=LORA)]
Vae = Annotated[str | None, model_option("--vae", metavar="FILE", help=VAE)]
OneSize = Annotated[str | None, drawing_option("--size", metavar="SIZE", help=SIZE + OF_THE_MODEL)]
Guidance = Annotated[float | None, drawing_option(help=GUIDANCE)]
SchedulerName = Annotated[str | None, drawing_option("--scheduler", metavar="NAME", help=SCHEDULER)]


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer is to see it: in place of a parameter that is a dataclass, the options that are its fields.

    A field is written as typer wants an option, as Annotated with what it is called and its help.
    """
    own = inspect.signature(command).parameters.values()
    kinds = {one.name: one.annotation for one in own if isinstance(one.annotation, type)}
    groups = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}
    fields = {name: inspect.signature(group).parameters for name, group in groups.items()}

    @wraps(command)
    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field: given.pop(field) for field in fields[name]})
        command(**given)

    options = [option for one in own for option in (fields[one.name].values() if one.name in groups else [one])]
    called.__signature__ = inspect.Signature(options)  # pyright: ignore[reportAttributeAccessIssue]
    return called


@dataclass(frozen=True, kw_only=True)
class PictureOptions:
    """What to draw, with which model and how much reduced."""

    negative: Annotated[str | None, drawing_option(metavar="TEXT", help="What to keep away from.")] = None
    size: OneSize = None
    steps: Annotated[int | None, drawing_option(help="More are finer and slower." + OF_THE_MODEL)] = None
    guidance: Guidance = None
    scheduler: SchedulerName = None
    seed: Annotated[int | None, drawing_option(help=SEED)] = None
    model: Annotated[str | None, model_option(metavar="MODEL", help=MODEL + by_default(EMBEDDED))] = None
    lora: Loras = None
    vae: Vae = None
    factor: Annotated[list[str] | None, reduction_option(metavar="F", help=FACTORS)] = None
    ratio: Annotated[list[str] | None, reduction_option(metavar="R", help=RATIOS)] = None
    plan: Annotated[Path | None, reduction_option(metavar="FILE.json", help=PLAN)] = None
    dense: Annotated[bool, reduction_option("--dense", help=DENSE)] = False
    phase: Annotated[Phase | None, reduction_option(help=PHASES)] = None
    start: Annotated[float | None, reduction_option(help=START)] = None
    stop: Annotated[float | None, reduction_option(help=STOP)] = None
    device: Annotated[str | None, machine_option(metavar="NAME", help=DEVICE + by_default("auto"))] = None
    dtype: Annotated[str | None, machine_option(metavar="NAME", help=DTYPE + by_default("auto"))] = None

    def settings(self, base: Settings) -> Settings:
        """What the options ask for; what they do not say is as in the plan, or else as in the base."""
        base = base.with_plan(str(self.plan)) if self.plan else base
        names = ("negative", "steps", "guidance", "scheduler", "seed", "model", "vae", "device", "dtype")
        given = {name: getattr(self, name) for name in names}
        given |= {"size": parse_size(self.size), "loras": self.lora and tuple(self.lora)}
        return replace(base, **without_none(**given), reduction=self.reduction(base.reduction))

    def reduction(self, base: LeverOrPlan | None) -> LeverOrPlan | None:
        """The reduction that the options ask for; what they do not say is as in the base."""
        options = {"factor": self.factor, "ratio": self.ratio, "dense": self.dense, "plan": self.plan}
        asked = [f"--{option}" for option, given in options.items() if given]
        if len(asked) > 1:
            raise typer.BadParameter("They exclude each other: use one of them.", param_hint=" and ".join(asked))
        kind = None if self.dense else Downsample if self.factor else Merge if self.ratio else base and type(base)
        rest = without_none(phase=self.phase, start=self.start, stop=self.stop)
        for option in rest:
            if kind is None or (option == "phase" and kind is not Downsample):
                needed = "--factor" if option == "phase" else "--factor or --ratio"
                raise typer.BadParameter(f"It needs {needed}.", param_hint=f"--{option}")
        if kind is None:
            return None
        if kind is Plan and isinstance(base, Plan):
            return replace(base, levers=tuple(replace(lever, **rest) for lever in base.levers))
        given = without_none(factor=self.factor, ratio=self.ratio)
        chosen = {option: levels(f"--{option}", words) for option, words in given.items()}
        return kind(**{**(vars(base) if type(base) is kind else {}), **chosen, **rest})


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Who draws: this machine, or a Ray cluster."""

    ray: Annotated[str | None, machine_option("--ray", metavar="[ADDRESS]", help=RAY)] = None
    workers: Annotated[str | None, machine_option("--workers", metavar="N", help=WORKERS)] = None
    gpu_share: Annotated[float, machine_option("--gpu-share", help=SHARE)] = 1.0

    def engine(self, device: str) -> Any:
        """A Ray cluster where it is asked for, else this machine with all of its GPUs."""
        if self.ray is None:
            from ..engines.here import Here, devices_here

            if self.workers is not None:
                told = "It needs --ray. Without it, there is a worker for each GPU."
                raise typer.BadParameter(told, param_hint="--workers")
            return Here(devices_here(device))
        from ..engines.on_ray import OnRay

        if not 0 < self.gpu_share <= 1:
            raise typer.BadParameter(
                f"{self.gpu_share} is not a share of a GPU, such as 0.5.", param_hint="--gpu-share"
            )
        return OnRay(self.ray, read_workers(self.workers), self.gpu_share, device)

    def cluster(self, device: str) -> Any:
        """A Ray cluster where it is asked for; else None, for what draws in this process and on one device."""
        return None if self.ray is None and self.workers is None else self.engine(device)


def without_none(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def parse_size(text: str | None) -> Size | None:
    return None if text is None else read_size(text)


def read_size(text: str) -> Size:
    """Size from a word: 512 is a square, 768x512 is width and height."""
    width, times, height = text.lower().partition("x")
    height = height if times else width
    if not (width.isdecimal() and height.isdecimal()):
        raise typer.BadParameter(f"{text!r} is not a size, such as 512 or 512x768.", param_hint="--size")
    return int(width), int(height)


def read_sizes(texts: list[str] | None, old: list[str] | None) -> list[Size] | None:
    """Sizes from words; the old spelling of the option, --sizes, goes on working until 0.3."""
    if old:
        typer.echo("Note: --sizes is now --size, with the same values. The old name will go in version 0.3.", err=True)
    words = [*(texts or []), *(old or [])]
    return [read_size(word) for word in words] or None


def levels(option: str, given: list[str]) -> Any:
    """One number, or one for each level, or "auto"."""
    if given == ["auto"] and option == "--factor":
        return "auto"
    texts = ",".join(given).split(",")
    try:
        numbers = [float(text) if "." in text else int(text) for text in texts]
    except ValueError:
        allowed = "a number, or one for each level, such as " + ("4,2; or auto" if option == "--factor" else "0.5,0.3")
        raise typer.BadParameter(f"{','.join(given)!r} is not {allowed}.", param_hint=option) from None
    return tuple(numbers) if len(numbers) > 1 else numbers[0]


def read_workers(text: str | None) -> tuple[int, int] | None:
    """4 is 4; 1-64 is from 1 to 64."""
    if text is None:
        return None
    least, dash, most = text.partition("-")
    most = most if dash else least
    if not (least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most)):
        raise typer.BadParameter(f"{text!r} is not a number of workers, such as 4 or 1-64.", param_hint="--workers")
    return int(least), int(most)
