"""`todome report`: an evaluation as one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from .options import by_default

RUN = "The folder of an evaluation, as todome eval makes it; it need not be finished."
OUT = "The file to write." + by_default("RUN/report.html")


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN)],
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE.html", help=OUT)] = None,
    cases: Annotated[int, typer.Option(min=1, help="How many pictures of each method to show, the worst first.")] = 12,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Writes an evaluation as one page: sliders between dense (full attention) and each method, plots, table, settings.

    The worst pictures come first. The HTML file needs nothing else; the plots are also in RUN/plots, as SVG and PNG.
    """
    from ..measuring.report import write_report

    path = write_report(run, out, cases=cases, force=force)
    typer.echo(f"Report: {path}, {path.stat().st_size / 1e6:.1f} MB")
    for plot in sorted((run / "plots").glob("*.*")):
        typer.echo(f"Plot: {plot}")
