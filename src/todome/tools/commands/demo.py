"""`todome demo`: dense, ToMe, ToDo and todome side by side."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from .options import SIZE, parse_size


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.png", help="The file to write.")] = Path("demo.png"),
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="What to draw.")] = "white daisies",
    steps: Annotated[int, typer.Option(help="More are finer and slower.")] = 25,
    seed: Annotated[int, typer.Option(help="The same seed gives the same pictures.")] = 3,
    size: Annotated[str, typer.Option(metavar="SIZE", help=SIZE)] = "256",
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Draws the same flower with full attention (dense), ToMe, ToDo and todome, and compares speed and closeness.

    On the embedded model, on the CPU, offline, in about 90 seconds on two cores.
    """
    from ..files import check_out
    from ..pipelines import EMBEDDED, weights_of
    from ..progress import doing
    from ..settings import recommended_settings

    settings = replace(
        recommended_settings(), prompt=prompt, steps=steps, seed=seed, size=parse_size(size), device="cpu"
    )
    check_out(out, force=force)
    with doing(f"Loading {EMBEDDED}"):
        from ..demo import as_sheet, as_table, compare
        from ..pictures import write_png
        from ..pipelines import open_pipeline

        pipe = open_pipeline(device="cpu")
    results = compare(pipe, settings)
    write_png(as_sheet(results), out, {"Title": prompt, **weights_of(EMBEDDED)}, force=force)
    typer.echo(f"{as_table(results)}\nPictures: {out}")
