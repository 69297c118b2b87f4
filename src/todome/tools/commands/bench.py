"""`todome bench`: how fast a model runs with each method, here."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..pipelines import EMBEDDED, format_size
from .options import (
    DEVICE,
    DTYPE,
    SIZES,
    SUBJECT,
    USUAL_METHODS,
    Loras,
    Vae,
    by_default,
    measure_option,
    read_sizes,
)

if TYPE_CHECKING:
    from ..measuring.speed import Bench

USUAL_SIZES = SIZES + by_default("512 1024; 256 512 for the embedded model")
DRIFTED = 0.05  # from which on it is worth a word
timing_option = partial(typer.Option, rich_help_panel="How to measure")


def bench(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=SUBJECT)] = EMBEDDED,
    *,
    lora: Loras = None,
    vae: Vae = None,
    size: Annotated[list[str] | None, measure_option(metavar="SIZE...", help=USUAL_SIZES)] = None,
    sizes: Annotated[list[str] | None, measure_option(hidden=True)] = None,
    methods: Annotated[list[str] | None, measure_option(metavar="NAME...", help=USUAL_METHODS)] = None,
    batch: Annotated[
        list[int] | None, measure_option(metavar="N...", help="Pictures drawn at once." + by_default(1))
    ] = None,
    compiled: Annotated[bool, measure_option("--compile", help="Measure with torch.compile too.")] = False,
    cuda_graph: Annotated[
        bool, measure_option("--cuda-graph", help="Measure as a CUDA graph too: the GPU's own time.")
    ] = False,
    steps: Annotated[int, timing_option(min=1, help="Steps of a picture, for the time per picture.")] = 25,
    rounds: Annotated[int, timing_option(min=1, help="How often each method is measured.")] = 3,
    seconds: Annotated[float, timing_option(min=0, help="For how long, each time.")] = 1.0,
    out: Annotated[
        Path | None,
        timing_option(
            "--out", "-o", metavar="FILE.json", help="Write results here; what it has is not measured again."
        ),
    ] = None,
    device: Annotated[str, timing_option(metavar="NAME", help=DEVICE)] = "auto",
    dtype: Annotated[str, timing_option(metavar="NAME", help=DTYPE)] = "auto",
) -> None:
    """Measures how fast a MODEL runs with full attention (dense) and with each method, on this machine.

    One call of the denoiser with guidance is timed, in rounds: every method once in each, dense first and last.

    [dim]todome bench sdxl --size 1024 2048 --methods todome:2 tomesd:0.5 --cuda-graph -o sdxl.json[/dim]
    """
    from ..files import check_out_file
    from ..measuring.speed import bench

    modes: list[Any] = ["eager", *["compile"] * compiled, *["cuda-graph"] * cuda_graph]
    pictures, bar = batch or [1], sys.stderr.isatty()
    timing = {"steps": steps, "rounds": rounds, "seconds": seconds, "device": device, "dtype": dtype}
    what = {"pictures": pictures, "modes": modes, "loras": lora or (), "vae": vae}
    if out is not None:
        check_out_file(out)
    try:
        show(bench(model, read_sizes(size, sizes), methods, out=out, progress=bar, **what, **timing))
    except KeyboardInterrupt as ended:
        kept = f"What is done is in {out}: the same command continues it." if out else "Keep what is done with --out."
        raise type(ended)(kept) from None
    if out is not None:
        typer.echo(f"Results: {out}")


def show(found: "Bench") -> None:
    """A table for every case, and a note where the machine drifted."""
    from ..measuring.tables import BENCH, markdown

    for case in found.cases():
        title = f"{case.model}, {format_size(case.size)} pixels, {case.pictures} at once, {case.mode}"
        typer.echo(f"{title}\n\n{markdown(BENCH, found.of(case))}\n")
        drift = found.drift(case)
        if drift is not None and abs(drift) > DRIFTED:
            pace = "slower" if drift > 0 else "faster"
            text = f"This machine became {abs(drift):.0%} {pace} within a round, measured by dense at its start and end"
            typer.echo(f"Note: {text}: trust small differences little.", err=True)
    typer.echo("Dense is full attention.")
