"""`todome generate`: pictures from a prompt."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import NothingToReduce
from ..metadata import settings_of
from ..pipelines import EMBEDDED, MULTIPLE, check_sides, format_size
from ..settings import Settings, recommended_settings
from .options import PictureOptions, drawing_option, machine_option, with_groups

AGAIN = "Make this picture of todome's again; other options change it. Asks before it opens files that it names."
FORCE = "Overwrite what is there."
TEXTS = 100_000  # bytes of a file beside its pixels


@with_groups
def generate(
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="What to draw. May be empty.")] = None,
    *,
    like: Annotated[Path | None, drawing_option(metavar="FILE.png", help=AGAIN)] = None,
    picture: PictureOptions,
    count: Annotated[int, drawing_option(min=1, help="How many, with seeds SEED, SEED + 1, ...")] = 1,
    out: Annotated[Path, machine_option("--out", "-o", metavar="FILE.png", help="The file to write.")],
    force: Annotated[bool, machine_option("--force", help=FORCE)] = False,
) -> None:
    """Makes a picture from a PROMPT, with attention on fewer tokens.

    The settings are written into the file, so that [bold]--like[/bold] can make it again.

    [dim]todome generate "a red tulip" -o tulip.png[/dim]
    [dim]todome generate "a tower" --model sd15.safetensors --lora ink.safetensors:0.8 --size 768x512 -o a.png[/dim]
    """
    if prompt is None and like is None:
        raise typer.BadParameter("Say what to draw, or name a picture to make again with --like.", param_hint="PROMPT")
    base = replace(settings_of(like), device="auto") if like else recommended_settings(picture.model or EMBEDDED)
    if like:
        confirm_files(base, picture, like)
    settings = picture.settings(base if prompt is None else replace(base, prompt=prompt))
    outs = picture_files(out, count)
    check_all(settings, outs, force)
    save(settings, outs, force)


def confirm_files(base: Settings, given: PictureOptions, like: Path) -> None:
    """Asks before files are opened that a picture names, which may come from anywhere, and not the user."""
    model = [] if base.model == EMBEDDED else [base.model]
    named = {"model": model, "lora": base.loras, "vae": [base.vae] if base.vae else []}
    unasked = [(name, file) for name, files in named.items() if getattr(given, name) is None for file in files]
    if not unasked:
        return
    files = " and ".join(f"the {name} {file!r}" for name, file in unasked)
    if not sys.stdin.isatty():
        options = " ".join(f"--{name} {shlex.quote(file)}" for name, file in unasked)
        text = f"{str(like)!r} names {files}. If you trust it, say so with {options}."
        raise typer.BadParameter(text, param_hint="--like")
    typer.confirm(f"{str(like)!r} names {files}. Use {'them' if len(unasked) > 1 else 'it'}?", abort=True, err=True)


def check_all(settings: Settings, outs: list[Path], force: bool) -> None:
    """Refuses what cannot work, as far as it can be known before a model is opened."""
    from ..files import check_out, check_room

    for out in outs:
        check_out(out, force=force)
    if settings.size:
        check_sides(settings.size, MULTIPLE)
    check_room(outs[0].parent, len(outs) * picture_bytes(settings))
    check_target(settings)


def picture_bytes(settings: Settings) -> int:
    """Bytes that the file of a picture takes at the most; without a size, which the model knows, those of its texts."""
    width, height = settings.size or (0, 0)
    return 3 * width * height + TEXTS


def check_target(settings: Settings) -> None:
    """Refuses a device, a model, LoRAs, a VAE or a reduction that cannot be used here."""
    from ..checkpoints.opening import check_parts
    from ..devices import reachable_device, torch_dtype
    from ..pipelines import find_model
    from ..progress import doing
    from ..unopened import check_reduction

    device = reachable_device(settings.device)
    torch_dtype(settings.dtype, device)
    check_parts(settings.loras, settings.vae)
    find_model(settings.model)
    with doing(f"Loading {settings.model}"):  # diffusers, to begin with
        check_reduction(settings.model, settings.size, settings.reduction)


def save(settings: Settings, outs: list[Path], force: bool) -> None:
    """A picture for each file, with one seed after the other. On Ctrl+C says which are there."""
    kept: list[str] = []
    try:
        typer.echo(draw_all(settings, outs, force, kept))
    except KeyboardInterrupt as ended:
        raise type(ended)(f"Kept: {', '.join(kept)}." if kept else "No picture was finished.") from None


def draw_all(settings: Settings, outs: list[Path], force: bool, kept: list[str]) -> str:
    """Draws and writes the pictures, and tells which in `kept`. Returns what was reduced."""
    from ..progress import progress_bar

    with progress_bar() as bar:
        bar.doing(f"Loading {settings.model}")
        from ..generate import make_picture, open_for
        from ..pictures import write_png

        pipe, reduced = open_for(settings), ""
        pipe.set_progress_bar_config(disable=True)
        bar.doing(f"Drawing {outs[0].name}")
        for number, out in enumerate(outs):
            try:
                made = make_picture(replace(settings, seed=settings.seed + number), pipe, reporter(bar, outs, number))
            except NothingToReduce as error:
                raise NothingToReduce(f"{error} Make the picture with --dense.") from None
            write_png(made.picture, out, made.texts(), force=force)
            kept.append(str(out))
            reduced = made.reduced if settings.reduction else "full attention (dense)"
            with bar.hidden():
                typer.echo(f"{out}: {format_size(made.picture.size)} pixels in {made.seconds:.1f} s")
    return reduced


def reporter(bar: Any, outs: list[Path], number: int) -> Any:
    """Function to call after each step of a picture: one bar for all of them."""

    def report(step: Any) -> None:
        words = f"{'Decoding' if step.done == step.steps else 'Drawing'} {outs[number].name}"
        bar.steps(words, number * step.steps + step.done, len(outs) * step.steps)

    return report


def picture_files(out: Path, count: int) -> list[Path]:
    """Names for several pictures: NAME-1.png, NAME-2.png, ..."""
    return [out] if count == 1 else [out.with_stem(f"{out.stem}-{i}") for i in range(1, count + 1)]
