"""`todome generate`: pictures from a prompt."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import NothingToReduce
from ...tokens.grid import Phase
from ..pipelines import EMBEDDED, format_size
from .options import (
    DEVICE,
    DTYPE,
    FACTORS,
    GUIDANCE,
    OF_THE_MODEL,
    RATIOS,
    SCHEDULER,
    by_default,
    choose_reduction,
    drawing_option,
    machine_option,
    parse_size,
    reduction_option,
    without_none,
)

AGAIN = "Make this picture of todome's again; other options change it. Asks before it uses a model it names."
PIPELINE = "A text-to-image pipeline of diffusers." + by_default(f"{EMBEDDED}, which is embedded")
PHASES = "Which keys to keep: others at every step, always the same (ToDo), or by chance." + by_default("dither")
START = "Dense before this share of the steps." + by_default(0)
STOP = "Dense after this share of the steps." + by_default(1)
SEED = "The same seed gives the same picture." + by_default(0)


def generate(
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="What to draw. May be empty.")] = None,
    *,
    like: Annotated[Path | None, drawing_option(metavar="FILE.png", help=AGAIN)] = None,
    model: Annotated[str | None, drawing_option(metavar="FOLDER_OR_HUB_ID", help=PIPELINE)] = None,
    negative: Annotated[str | None, drawing_option(metavar="TEXT", help="What to keep away from.")] = None,
    size: Annotated[str | None, drawing_option(metavar="WIDTHxHEIGHT", help="In pixels." + OF_THE_MODEL)] = None,
    steps: Annotated[int | None, drawing_option(help="More are finer and slower." + OF_THE_MODEL)] = None,
    guidance: Annotated[float | None, drawing_option(help=GUIDANCE)] = None,
    scheduler: Annotated[str | None, drawing_option(metavar="NAME", help=SCHEDULER)] = None,
    seed: Annotated[int | None, drawing_option(help=SEED)] = None,
    count: Annotated[int, drawing_option(min=1, help="How many, with seeds SEED, SEED + 1, ...")] = 1,
    factor: Annotated[list[str] | None, reduction_option(metavar="F", help=FACTORS)] = None,
    ratio: Annotated[list[str] | None, reduction_option(metavar="R", help=RATIOS)] = None,
    dense: Annotated[bool, reduction_option("--dense", help="Reduce nothing.")] = False,
    phase: Annotated[Phase | None, reduction_option(help=PHASES)] = None,
    start: Annotated[float | None, reduction_option(help=START)] = None,
    stop: Annotated[float | None, reduction_option(help=STOP)] = None,
    out: Annotated[Path, machine_option("--out", "-o", metavar="FILE.png", help="Where the picture goes.")],
    device: Annotated[str | None, machine_option(metavar="NAME", help=DEVICE + by_default("auto"))] = None,
    dtype: Annotated[str | None, machine_option(metavar="NAME", help=DTYPE + by_default("auto"))] = None,
    force: Annotated[bool, machine_option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Makes a picture from a PROMPT, with attention on fewer tokens.

    The settings are written into the file, so that [bold]--like[/bold] can make it again.

    [dim]todome generate "a red tulip" -o tulip.png[/dim]
    """
    from ..generate import recommended_settings, settings_of

    if prompt is None and like is None:
        raise typer.BadParameter("Say what to draw, or name a picture to make again with --like.", param_hint="PROMPT")
    base = replace(settings_of(like), device="auto") if like else recommended_settings(model or EMBEDDED)
    if like and model is None:
        confirm_model(base.model, like)
    given = {"prompt": prompt, "negative": negative, "model": model, "seed": seed, "size": parse_size(size)}
    given |= {"steps": steps, "guidance": guidance, "scheduler": scheduler, "device": device, "dtype": dtype}
    rest = without_none(phase=phase, start=start, stop=stop)
    reduction = choose_reduction(base.reduction, factor, ratio, dense, rest)
    save(replace(base, **without_none(**given), reduction=reduction), picture_files(out, count), force)


def confirm_model(model: str, like: Path) -> None:
    """Asks before a model is used that a picture names, which may come from anywhere, and not the user."""
    if model == EMBEDDED:
        return
    if not sys.stdin.isatty():
        text = f"{str(like)!r} names the model {model!r}. If you trust it, say so with --model {model!r}."
        raise typer.BadParameter(text, param_hint="--like")
    typer.confirm(f"{str(like)!r} names the model {model!r}. Use it?", abort=True, err=True)


def save(settings: Any, outs: list[Path], force: bool) -> None:
    """A picture for each file, with one seed after the other."""
    from ..files import check_out
    from ..generate import make_picture
    from ..pictures import write_png
    from ..pipelines import open_pipeline

    for out in outs:
        check_out(out, force=force)
    pipe, done = open_pipeline(settings.model, settings.device, settings.dtype), ""
    for seed, out in enumerate(outs, start=settings.seed):
        pipe.set_progress_bar_config(desc=out.name, disable=None, leave=False)
        try:
            made = make_picture(replace(settings, seed=seed), pipe)
        except NothingToReduce as error:
            raise NothingToReduce(f"{error} Make the picture with --dense.") from None
        write_png(made.picture, out, made.texts(), force=force)
        done = made.reduced
        typer.echo(f"{out}: {format_size(made.picture.size)} pixels in {made.seconds:.1f} s")
    typer.echo(done)


def picture_files(out: Path, count: int) -> list[Path]:
    """Names for several pictures: NAME-1.png, NAME-2.png, ..."""
    return [out] if count == 1 else [out.with_stem(f"{out.stem}-{i}") for i in range(1, count + 1)]
