"""`todome train-lora`: a LoRA from a folder of pictures, faster."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ...reductions import Downsample, Merge, Reduction
from ...tokens.grid import Phase
from ..pipelines import EMBEDDED
from .options import (
    FACTORS,
    MODEL,
    OF_THE_MODEL,
    PHASES,
    RATIOS,
    by_default,
    choose_reduction,
    machine_option,
    parse_size,
    reduction_option,
    without_none,
)

data_option = partial(typer.Option, rich_help_panel="What to learn from")
learning_option = partial(typer.Option, rich_help_panel="How to learn")
sample_option = partial(typer.Option, rich_help_panel="Pictures on the way")

DATA = "Pictures, with captions in NAME.txt beside NAME.png or in one metadata.jsonl."
AREA = "Resize pictures to as many pixels as 512x512 or 512x768 have, in their own shapes." + OF_THE_MODEL
RANDOM = PHASES.replace("dither]", "random]")
STOP = "Full attention after this share of the training; 0.9 trains the last tenth with it." + by_default(1)
PRECISION = "auto, no, fp16, bf16; auto is bf16 or fp16 on a GPU, no (float32) elsewhere."
OUT = "The file to write; checkpoints and samples go to NAME-run beside it."


def train_lora(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL)] = EMBEDDED,
    *,
    data: Annotated[Path, data_option(metavar="FOLDER", help=DATA)],
    caption: Annotated[str | None, data_option(metavar="TEXT", help="Caption of pictures that have none.")] = None,
    size: Annotated[str | None, data_option(metavar="SIZE", help=AREA)] = None,
    flip: Annotated[bool, data_option("--flip", help="Show each picture mirrored as well.")] = False,
    steps: Annotated[int, learning_option(help="Steps of the optimiser.")] = 1000,
    rank: Annotated[int, learning_option(help="Rank of its matrices: how much it can hold.")] = 16,
    alpha: Annotated[
        float | None, learning_option(help="The LoRA is scaled by alpha / rank." + by_default("the rank"))
    ] = None,
    learning_rate: Annotated[float, learning_option(help="Learning rate of the optimiser.")] = 1e-4,
    batch: Annotated[int, learning_option(help="Pictures in a batch of each process.")] = 1,
    accumulate: Annotated[int, learning_option(help="Batches of each process that make one step.")] = 1,
    seed: Annotated[int, learning_option(help="The same seed gives the same LoRA.")] = 0,
    factor: Annotated[list[str] | None, reduction_option(metavar="F", help=FACTORS)] = None,
    ratio: Annotated[list[str] | None, reduction_option(metavar="R", help=RATIOS)] = None,
    dense: Annotated[bool, reduction_option("--dense", help="Full attention: reduce nothing (dense).")] = False,
    phase: Annotated[Phase | None, reduction_option(help=RANDOM)] = None,
    stop: Annotated[float | None, reduction_option(help=STOP)] = None,
    sample: Annotated[
        list[str] | None, sample_option(metavar="PROMPT", help="Draw this while training. May be given several times.")
    ] = None,
    sample_every: Annotated[int, sample_option(help="Draw them every so many steps.")] = 250,
    sample_reduced: Annotated[
        bool, sample_option("--sample-reduced", help="Draw them with reduced attention.")
    ] = False,
    out: Annotated[Path, machine_option("--out", "-o", metavar="NAME.safetensors", help=OUT)],
    save_every: Annotated[int, machine_option(help="Save a checkpoint every so many steps.")] = 250,
    keep: Annotated[int, machine_option(help="How many checkpoints to keep.")] = 2,
    resume: Annotated[bool, machine_option("--resume", help="Continue from the newest checkpoint.")] = False,
    force: Annotated[bool, machine_option("--force", help="Start over, and overwrite what is there.")] = False,
    precision: Annotated[str, machine_option(metavar="NAME", help=PRECISION)] = "auto",
    checkpointing: Annotated[
        bool, machine_option("--checkpointing", help="Gradient checkpointing: less memory, more time.")
    ] = False,
    compile: Annotated[bool, machine_option("--compile", help="Use torch.compile.")] = False,
    cpu: Annotated[bool, machine_option("--cpu", help="Train on the CPU even where there is a GPU.")] = False,
) -> None:
    """Trains a LoRA on a folder of pictures, with attention on fewer tokens.

    It is saved on the way, and on Ctrl+C; [bold]--resume[/bold] continues exactly where it stopped. On several GPUs:
    [bold]accelerate launch -m todome train-lora ...[/bold]

    [dim]todome train-lora MODEL --data photos --size 768 --factor 2 --stop 0.9 -o photos.safetensors[/dim]
    """
    from ..training.lora import Interrupted, Recipe, Samples, train

    usual = Downsample(2 if model == EMBEDDED else "auto", phase="random")
    asked = choose_reduction(usual, factor, ratio, dense, without_none(phase=phase, stop=stop))
    reduction = asked and type(asked)(**{**vars(asked), "seed": seed})
    what = {"data": data, "caption": caption, "size": square_side(size), "flip": flip, "reduction": reduction}
    how = {"rank": rank, "alpha": alpha, "learning_rate": learning_rate, "steps": steps, "batch": batch}
    how |= {"accumulate": accumulate, "seed": seed, "precision": precision}
    recipe = Recipe(model=model, **what, **how, checkpointing=checkpointing, compile=compile)
    samples = Samples(sample or (), sample_every, sampling_reduction(reduction) if sample_reduced else None)
    places = {"resume": resume, "force": force, "save_every": save_every, "keep": keep, "cpu": cpu}
    try:
        done = train(recipe, out, samples=samples, **places)
    except Interrupted as where:
        typer.echo(f"Interrupted, and saved, after {where}: the same command with --resume continues it.", err=True)
        raise typer.Exit(130) from None
    if done.is_main:
        typer.echo(f"{out}: rank {rank}, {done.steps} steps in {done.seconds:.1f} s, {reduction or 'dense'}")


def square_side(size: str | None) -> int | None:
    """Side of a square with as many pixels as a size."""
    found = parse_size(size)
    return found and round(math.sqrt(found[0] * found[1]))


def sampling_reduction(reduction: Reduction | None) -> Reduction | None:
    """The reduction to draw samples with, where this one is trained with: in all steps, dithered."""
    if isinstance(reduction, Merge):
        return replace(reduction, stop=1.0)
    return Downsample(reduction.factor, seed=reduction.seed) if isinstance(reduction, Downsample) else None
