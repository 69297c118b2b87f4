"""`todome tune`: a plan for a model, a size and a budget, measured here."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ...levers.plan import Plan
from ..pipelines import EMBEDDED
from .evaluate import PROMPTS, read_prompts
from .options import (
    DEVICE,
    DTYPE,
    MODEL,
    EngineOptions,
    Guidance,
    Loras,
    OneSize,
    SchedulerName,
    Vae,
    by_default,
    drawing_option,
    machine_option,
    measure_option,
    parse_size,
    with_groups,
)

KEEP = "The fastest plan whose pictures keep at least so many dB to full attention: from 45 no difference is visible."
FASTER = "The closest plan that is so many times as fast as full attention, such as 1.5."
MINUTES = "Stop after so many, with the best plan found until then."
CALIBRATION = "Pictures to measure single layers with."
HELD_OUT = "Pictures of other prompts, to choose plans with; as many more check the one that is chosen."
RUN = "A folder that keeps every measurement: the same command goes on." + by_default("PLAN.tune")


@with_groups
def tune(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL)] = EMBEDDED,
    *,
    lora: Loras = None,
    vae: Vae = None,
    keep: Annotated[float | None, measure_option(metavar="DB", help=KEEP)] = None,
    faster: Annotated[float | None, measure_option(metavar="TIMES", help=FASTER)] = None,
    minutes: Annotated[float | None, measure_option(min=0.01, help=MINUTES)] = None,
    calibration: Annotated[int, measure_option(min=1, help=CALIBRATION)] = 3,
    held_out: Annotated[int, measure_option(min=1, help=HELD_OUT)] = 8,
    size: OneSize = None,
    prompts: Annotated[Path | None, drawing_option(metavar="FILE", help=PROMPTS)] = None,
    steps: Annotated[int | None, drawing_option(help="Of every picture." + by_default(25))] = None,
    guidance: Guidance = None,
    scheduler: SchedulerName = None,
    seed: Annotated[int, drawing_option(help="Picture i starts from the noise of SEED + i.")] = 0,
    batch: Annotated[int, drawing_option(min=1, help="Pictures drawn at once; a step is timed with as many.")] = 1,
    out: Annotated[Path, machine_option("--out", "-o", metavar="PLAN.json", help="Where the plan goes.")],
    run: Annotated[Path | None, machine_option(metavar="FOLDER", help=RUN)] = None,
    device: Annotated[str, machine_option(metavar="NAME", help=DEVICE)] = "auto",
    dtype: Annotated[str, machine_option(metavar="NAME", help=DTYPE)] = "auto",
    cluster: EngineOptions,
    force: Annotated[bool, machine_option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Finds how much a MODEL can be reduced within a budget, layer by layer, on this machine.

    It measures what each layer's attention costs and what reducing it changes, and writes a plan. How close and how
    fast that is, it measures on pictures that were not used to find it.

    [dim]todome tune --keep 40 --size 256x256 -o plan.json[/dim]
    """
    from ..files import check_out, check_out_folder
    from ..tuning.tuner import tune

    if (keep is None) == (faster is None):
        raise typer.BadParameter("Say how close, or how fast, and not both.", param_hint="--keep or --faster")
    check_out(out, ending=".json", force=force)
    folder, sides = run or out.with_suffix(".tune"), parse_size(size)
    check_out_folder(folder, "run")
    width, height = sides or (None, None)
    drawing = {"steps": steps, "guidance": guidance, "scheduler": scheduler, "seed": seed, "batch": batch}
    counts = {"calibration": calibration, "held_out": held_out, "minutes": minutes}
    words = read_prompts(prompts) if prompts else None
    machine = {"device": device, "dtype": dtype, "progress": sys.stderr.isatty(), "out": folder}
    machine |= {"loras": lora or (), "vae": vae, "engine": cluster.cluster(device)}
    try:
        plan = tune(model, words, height=height, width=width, keep=keep, faster=faster, **drawing, **counts, **machine)
    except KeyboardInterrupt as ended:
        raise type(ended)(f"What was measured is in {folder}: the same command goes on.") from None
    plan.save(out)
    show(plan, out, model)


def show(plan: Plan, out: Path, model: str) -> None:
    """The layers that are reduced, what was found, and what to do with it; where that gains nothing, what instead."""
    from ..tuning.layers import factors_of

    for name, layer in plan.layers.items():
        if layer.is_reduced:
            typer.echo(f"{name}: factor {', then '.join(factors_of(layer))}")
    typer.echo(plan.evidence["verdict"])
    if not any(layer.is_reduced for layer in plan.layers.values()):
        typer.echo(f"All layers stay dense (full attention): there is no plan to use. {out} holds what was measured.")
        return
    control, use = plan.evidence.get("control"), f"--plan {out}"
    if control and control["psnr"] > plan.evidence["psnr"]:
        use = f"--dense --steps {control['steps']}"
    own = "" if model == EMBEDDED else f"--model {shlex.quote(model)} "
    typer.echo(f'Plan: {out}\nNext: todome generate "..." {own}{use} -o picture.png')
