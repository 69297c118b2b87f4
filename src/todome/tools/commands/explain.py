"""`todome explain`: whether it pays, on this model, at this size, here."""

from typing import Annotated

import typer

from ..pipelines import EMBEDDED
from .options import DEVICE, DTYPE, OF_THE_MODEL, SUBJECT, by_default, levels, parse_size


def explain(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=SUBJECT)] = EMBEDDED,
    *,
    size: Annotated[str | None, typer.Option(metavar="WIDTHxHEIGHT", help="In pixels." + OF_THE_MODEL)] = None,
    factor: Annotated[
        list[str] | None, typer.Option(metavar="F", help="As in todome generate." + by_default("auto"))
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help=DEVICE)] = "auto",
    dtype: Annotated[str, typer.Option(metavar="NAME", help=DTYPE)] = "auto",
) -> None:
    """Says what attention costs on a MODEL, level by level, what can be gained, and whether it pays.

    Measured here, in a few seconds.

    [dim]todome explain sdxl --size 1024x1024[/dim]
    """
    from ...reductions import Downsample
    from ..measuring.explanation import explain
    from ..measuring.subjects import open_subject, own_size

    target = open_subject(model, device, dtype)
    width, height = parse_size(size) or own_size(target)
    reduction = Downsample(levels("--factor", factor)) if factor else None
    typer.echo(explain(target, height, width, reduction, name=model))
