"""Options that several commands take: their help, and the values that their words mean."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ...plan import Plan
from ...reductions import Downsample, Merge, Reduction
from ...tokens.grid import Phase
from ..devices import DTYPES
from ..pipelines import EMBEDDED, Size
from ..schedulers import SCHEDULERS

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
PLAN = "A factor for each layer, as todome tune wrote it; its size and steps are taken too."
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
Loras = Annotated[list[str] | None, model_option("--lora", metavar="FILE[:WEIGHT]", help=LORA)]
Vae = Annotated[str | None, model_option("--vae", metavar="FILE", help=VAE)]
START = "Full attention before this share of the steps." + by_default(0)
STOP = "Full attention after this share of the steps; 0.8 draws the last fifth with it." + by_default(1)
DENSE = "Full attention: reduce nothing (dense)."
Negative = Annotated[str | None, drawing_option(metavar="TEXT", help="What to keep away from.")]
OneSize = Annotated[str | None, drawing_option("--size", metavar="SIZE", help=SIZE + OF_THE_MODEL)]
Steps = Annotated[int | None, drawing_option(help="More are finer and slower." + OF_THE_MODEL)]
Guidance = Annotated[float | None, drawing_option(help=GUIDANCE)]
SchedulerName = Annotated[str | None, drawing_option("--scheduler", metavar="NAME", help=SCHEDULER)]
Model = Annotated[str | None, model_option("--model", metavar="MODEL", help=MODEL + by_default(EMBEDDED))]
Factors = Annotated[list[str] | None, reduction_option("--factor", metavar="F", help=FACTORS)]
Ratios = Annotated[list[str] | None, reduction_option("--ratio", metavar="R", help=RATIOS)]
PlanFile = Annotated[Path | None, reduction_option("--plan", metavar="FILE.json", help=PLAN)]
Dense = Annotated[bool, reduction_option("--dense", help=DENSE)]
PhaseName = Annotated[Phase | None, reduction_option("--phase", help=PHASES)]
Start = Annotated[float | None, reduction_option(help=START)]
Stop = Annotated[float | None, reduction_option(help=STOP)]
DEVICE = "auto (a GPU if there is one), cpu, cuda, mps, ..."
DTYPE = f"auto (float16 on a GPU, float32 on a CPU), {', '.join(DTYPES)}."
Device = Annotated[str | None, machine_option("--device", metavar="NAME", help=DEVICE + by_default("auto"))]
Dtype = Annotated[str | None, machine_option("--dtype", metavar="NAME", help=DTYPE + by_default("auto"))]

RAY = "On a Ray cluster: its address, or none for one on this machine (or RAY_ADDRESS)."
WORKERS = "With --ray: how many, or 1-64 for a cluster that grows." + by_default("one for each GPU")
SHARE = "With --ray: the share of a GPU that each worker gets; 0.5 puts two on one."
Ray = Annotated[str | None, machine_option("--ray", metavar="[ADDRESS]", help=RAY)]
Workers = Annotated[str | None, machine_option("--workers", metavar="N", help=WORKERS)]
Share = Annotated[float, machine_option("--gpu-share", help=SHARE)]


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


def choose_reduction(
    base: Reduction | None,
    factor: list[str] | None,
    ratio: list[str] | None,
    dense: bool,
    rest: dict[str, Any],
    plan: Plan | None = None,
) -> Reduction | None:
    """The reduction that the options ask for; what they do not say is as in the base."""
    options = [("--factor", factor), ("--ratio", ratio), ("--dense", dense), ("--plan", plan)]
    asked = [option for option, given in options if given]
    if len(asked) > 1:
        raise typer.BadParameter("They exclude each other: use one of them.", param_hint=" and ".join(asked))
    kind = None if dense else Plan if plan else Downsample if factor else Merge if ratio else base and type(base)
    for option in rest:
        if kind is None or (option == "phase" and kind is not Downsample):
            needed = "--factor" if option == "phase" else "--factor or --ratio"
            raise typer.BadParameter(f"It needs {needed}.", param_hint=f"--{option}")
    if kind is None:
        return None
    setting = {"factor": levels("--factor", factor)} if factor else {"ratio": levels("--ratio", ratio)} if ratio else {}
    base = plan or base
    return kind(**{**(vars(base) if type(base) is kind else {}), **setting, **rest})


def chosen_settings(
    base: Any,
    *,
    factor: list[str] | None,
    ratio: list[str] | None,
    dense: bool,
    rest: dict[str, Any],
    size: str | None,
    lora: list[str] | None,
    plan: Path | None,
    **given: Any,
) -> Any:
    """Settings that the options ask for; what they do not say is as in the plan, or else as in the base."""
    given |= {"size": parse_size(size), "loras": lora and tuple(lora)}
    planned = Plan.load(plan) if plan else None
    base = base if planned is None else replace(base, **without_none(**measured_with(planned)))
    reduction = choose_reduction(base.reduction, factor, ratio, dense, rest, planned)
    return replace(base, **without_none(**given), reduction=reduction)


def measured_with(plan: Plan) -> dict[str, Any]:
    """The settings that a plan was measured with."""
    found = {name: plan.measured.get(name) for name in ("size", "steps", "guidance")}
    return {**found, "size": found["size"] and tuple(found["size"])}


def choose_engine(ray: str | None, workers: str | None, gpu_share: float, device: str) -> Any:
    """Who draws: a Ray cluster where it is asked for, else this machine with all of its GPUs."""
    if ray is None:
        from ..engines.here import Here, devices_here

        if workers is not None:
            raise typer.BadParameter(
                "It needs --ray. Without it, there is a worker for each GPU.", param_hint="--workers"
            )
        return Here(devices_here(device))
    from ..engines.on_ray import OnRay

    if not 0 < gpu_share <= 1:
        raise typer.BadParameter(f"{gpu_share} is not a share of a GPU, such as 0.5.", param_hint="--gpu-share")
    return OnRay(ray, read_workers(workers), gpu_share, device)


def read_workers(text: str | None) -> tuple[int, int] | None:
    """4 is 4; 1-64 is from 1 to 64."""
    if text is None:
        return None
    least, dash, most = text.partition("-")
    most = most if dash else least
    if not (least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most)):
        raise typer.BadParameter(f"{text!r} is not a number of workers, such as 4 or 1-64.", param_hint="--workers")
    return int(least), int(most)
