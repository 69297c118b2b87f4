"""`todome report`: an evaluation, or a sample of a batch, as one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from .options import by_default

RUN = "The folder of an evaluation (todome eval) or of a batch (todome batch); it need not be finished."
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
    Of a batch, it shows some of the pictures, evenly over all rows, and what failed.
    """
    from ..batch.sample import is_batch, write_sample
    from ..measuring.report import write_report

    path = (write_sample if is_batch(run) else write_report)(run, out, cases=cases, force=force)
    typer.echo(f"Report: {path}, {path.stat().st_size / 1e6:.1f} MB")
    for plot in sorted((run / "plots").glob("*.*")):
        typer.echo(f"Plot: {plot}")
