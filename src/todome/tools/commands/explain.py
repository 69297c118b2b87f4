"""`todome explain`: whether it pays, on this model, at this size, here."""

from typing import Annotated

import typer

from ..pipelines import EMBEDDED
from .options import DEVICE, DTYPE, FACTOR, OF_THE_MODEL, SIZE, SUBJECT, Loras, Vae, by_default, levels, parse_size


def explain(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=SUBJECT)] = EMBEDDED,
    *,
    lora: Loras = None,
    vae: Vae = None,
    size: Annotated[str | None, typer.Option(metavar="SIZE", help=SIZE + OF_THE_MODEL)] = None,
    factor: Annotated[list[str] | None, typer.Option(metavar="F", help=FACTOR + by_default("auto"))] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help=DEVICE)] = "auto",
    dtype: Annotated[str, typer.Option(metavar="NAME", help=DTYPE)] = "auto",
) -> None:
    """Says what full attention (dense) costs on a MODEL, level by level, what can be gained, and whether it pays.

    Measured here, in a few seconds. Level 1 is the finest grid of tokens that attend to each other.

    [dim]todome explain sdxl --size 1024[/dim]
    """
    from ...levers.downsample import Downsample
    from ..progress import progress_bar

    asked = parse_size(size)
    reduction = Downsample(levels("--factor", factor)) if factor else None
    with progress_bar() as bar:
        bar.doing(f"Loading {model}")
        from ..measuring.explanation import explain
        from ..measuring.subjects import ARCHITECTURES, open_subject, own_size
        from ..unopened import check_reduction

        if model not in ARCHITECTURES:
            check_reduction(model, asked, reduction)
        target = open_subject(model, device, dtype, loras=lora or (), vae=vae)
        width, height = asked or own_size(target)
        bar.doing(f"Measuring {model} at {width}x{height}")
        explanation = explain(target, height, width, reduction, name=model)
    typer.echo(explanation)
