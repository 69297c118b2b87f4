"""`todome generate`: pictures from a prompt."""

import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ...reductions import Downsample, Merge, Reduction
from ...tokens.grid import Phase
from ..pipelines import EMBEDDED, format_size
from .options import (
    DEVICE,
    DTYPE,
    GUIDANCE,
    OF_THE_MODEL,
    SCHEDULER,
    by_default,
    drawn,
    levels,
    parsed_size,
    placed,
    present,
)

reduced = partial(typer.Option, rich_help_panel="How much to reduce")

AGAIN = (
    "Make this picture of todome's again; other options change it. Asks before it uses another model than todome's own."
)
PIPELINE = "A text-to-image pipeline of diffusers." + by_default(f"{EMBEDDED}, which is embedded")
FACTOR = "Keep 1 key in F x F at level 1, the finest; 4,2 is for levels 1 and 2; auto goes by the size."
FACTORS = FACTOR + by_default("2 for the embedded model, else auto")
RATIOS = "Merge this share of tokens (ToMe) instead; 0.5,0.3 is for levels 1 and 2."
PHASES = "Which keys to keep: others at every step, always the same (ToDo), or by chance." + by_default("dither")
SEED = "The same seed gives the same picture." + by_default(0)


def generate(
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="What to draw. May be empty.")] = None,
    *,
    like: Annotated[Path | None, drawn(metavar="FILE.png", help=AGAIN)] = None,
    model: Annotated[str | None, drawn(metavar="FOLDER_OR_HUB_ID", help=PIPELINE)] = None,
    negative: Annotated[str | None, drawn(metavar="TEXT", help="What to keep away from.")] = None,
    size: Annotated[str | None, drawn(metavar="WIDTHxHEIGHT", help="In pixels." + OF_THE_MODEL)] = None,
    steps: Annotated[int | None, drawn(help="More are finer and slower." + OF_THE_MODEL)] = None,
    guidance: Annotated[float | None, drawn(help=GUIDANCE)] = None,
    scheduler: Annotated[str | None, drawn(metavar="NAME", help=SCHEDULER)] = None,
    seed: Annotated[int | None, drawn(help=SEED)] = None,
    count: Annotated[int, drawn(min=1, help="How many, with seeds SEED, SEED + 1, ...")] = 1,
    factor: Annotated[list[str] | None, reduced(metavar="F", help=FACTORS)] = None,
    ratio: Annotated[list[str] | None, reduced(metavar="R", help=RATIOS)] = None,
    dense: Annotated[bool, reduced("--dense", help="Reduce nothing.")] = False,
    phase: Annotated[Phase | None, reduced(help=PHASES)] = None,
    start: Annotated[float | None, reduced(help="Dense before this share of the steps." + by_default(0))] = None,
    stop: Annotated[float | None, reduced(help="Dense after this share of the steps." + by_default(1))] = None,
    out: Annotated[Path, placed("--out", "-o", metavar="FILE.png", help="Where the picture goes.")],
    device: Annotated[str | None, placed(metavar="NAME", help=DEVICE + by_default("auto"))] = None,
    dtype: Annotated[str | None, placed(metavar="NAME", help=DTYPE + by_default("auto"))] = None,
    force: Annotated[bool, placed("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Makes a picture from a PROMPT, with attention on fewer tokens.

    The settings are written into the file, so that [bold]--like[/bold] can make it again.

    [dim]todome generate "a red tulip" -o tulip.png[/dim]
    """
    from ..generate import recommended, settings_of

    if prompt is None and like is None:
        raise typer.BadParameter("Say what to draw, or name a picture to make again with --like.", param_hint="PROMPT")
    base = replace(settings_of(like), device="auto") if like else recommended(model or EMBEDDED)
    if like and model is None:
        confirm_model(base.model, like)
    given = {"prompt": prompt, "negative": negative, "model": model, "seed": seed, "size": parsed_size(size)}
    given |= {"steps": steps, "guidance": guidance, "scheduler": scheduler, "device": device, "dtype": dtype}
    reduction = chosen(base.reduction, factor, ratio, dense, present(phase=phase, start=start, stop=stop))
    save(replace(base, **present(**given), reduction=reduction), numbered(out, count), force)


def confirm_model(model: str, like: Path) -> None:
    """Asks before a model is used that a picture names, which may come from anywhere, and not the user."""
    if model == EMBEDDED:
        return
    if not sys.stdin.isatty():
        text = f"{str(like)!r} names the model {model!r}. If you trust it, say so with --model {shlex.quote(model)}."
        raise typer.BadParameter(text, param_hint="--like")
    typer.confirm(f"{str(like)!r} names the model {model!r}. Use it?", abort=True, err=True)


def save(settings: Any, outs: list[Path], force: bool) -> None:
    """A picture for each file, with one seed after the other."""
    from ..generate import make_picture
    from ..pictures import check_out, write_png
    from ..pipelines import open_pipeline

    for out in outs:
        check_out(out, force=force)
    pipe, done = open_pipeline(settings.model, settings.device, settings.dtype), ""
    for seed, out in enumerate(outs, start=settings.seed):
        pipe.set_progress_bar_config(desc=out.name, disable=None, leave=False)
        made = make_picture(replace(settings, seed=seed), pipe)
        write_png(made.picture, out, made.texts(), force=force)
        done = made.reduced
        typer.echo(f"{out}: {format_size(made.picture.size)} pixels in {made.seconds:.1f} s")
    typer.echo(done)


def numbered(out: Path, count: int) -> list[Path]:
    return [out] if count == 1 else [out.with_stem(f"{out.stem}-{i}") for i in range(1, count + 1)]


def chosen(
    base: Reduction | None, factor: list[str] | None, ratio: list[str] | None, dense: bool, rest: dict[str, Any]
) -> Reduction | None:
    """The reduction that the options ask for; what they do not say is as in the base."""
    asked = [option for option, given in [("--factor", factor), ("--ratio", ratio), ("--dense", dense)] if given]
    if len(asked) > 1:
        raise typer.BadParameter("They exclude each other: use one of them.", param_hint=" and ".join(asked))
    kind = None if dense else Downsample if factor else Merge if ratio else base and type(base)
    for option in rest:
        if kind is None or (option == "phase" and kind is Merge):
            needed = "--factor" if option == "phase" else "--factor or --ratio"
            raise typer.BadParameter(f"It needs {needed}.", param_hint=f"--{option}")
    if kind is None:
        return None
    setting = {"factor": levels("--factor", factor)} if factor else {"ratio": levels("--ratio", ratio)} if ratio else {}
    return kind(**{**(vars(base) if type(base) is kind else {}), **setting, **rest})
