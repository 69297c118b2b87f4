"""`todome eval`: the same pictures dense and with each method, how close they are and how fast they were."""

from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from ..pipelines import EMBEDDED
from .options import (
    DEVICE,
    DTYPE,
    MODEL,
    OF_THE_MODEL,
    SIZES,
    USUAL_METHODS,
    EngineOptions,
    Guidance,
    Loras,
    SchedulerName,
    Vae,
    by_default,
    drawing_option,
    machine_option,
    measure_option,
    read_sizes,
    with_groups,
    without_none,
)

PROMPTS = "A prompt on each line; lines that begin with # are left out." + by_default(f"20 flowers for {EMBEDDED}")
TABLE = "Measure what a paper's table has and show it in its layout: tome or todo."
FID = "Measure FID too, to the dense pictures."
REAL = "FID to real pictures instead: a folder, or a .safetensors file with their features."
OUT = "The folder of the run. One that was interrupted is continued."


@with_groups
def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL)] = EMBEDDED,
    *,
    lora: Loras = None,
    vae: Vae = None,
    prompts: Annotated[Path | None, drawing_option(metavar="FILE", help=PROMPTS)] = None,
    methods: Annotated[
        list[str] | None, drawing_option(metavar="NAME...", help="dense:20 (fewer steps), " + USUAL_METHODS)
    ] = None,
    size: Annotated[list[str] | None, drawing_option(metavar="SIZE...", help=SIZES + OF_THE_MODEL)] = None,
    sizes: Annotated[list[str] | None, drawing_option(hidden=True)] = None,
    pictures: Annotated[int, drawing_option("--pictures", "-n", help="How many, of each method and size.")] = 16,
    seed: Annotated[int, drawing_option(help="Picture i starts from the noise of SEED + i.")] = 0,
    steps: Annotated[int | None, drawing_option(help="Steps of every picture." + by_default(25))] = None,
    guidance: Guidance = None,
    scheduler: SchedulerName = None,
    batch: Annotated[int, drawing_option(help="Pictures drawn at once.")] = 1,
    table: Annotated[str | None, measure_option(metavar="NAME", help=TABLE)] = None,
    fid: Annotated[bool, measure_option("--fid", help=FID)] = False,
    real: Annotated[Path | None, measure_option(metavar="FOLDER", help=REAL)] = None,
    lpips: Annotated[Path | None, measure_option(metavar="FILE", help="File with the weights of LPIPS.")] = None,
    inception: Annotated[
        Path | None, measure_option(metavar="FILE", help="File with the weights of Inception, for FID.")
    ] = None,
    out: Annotated[Path, machine_option("--out", "-o", metavar="RUN", help=OUT)] = Path("todome-eval"),
    cluster: EngineOptions,
    device: Annotated[str, machine_option(metavar="NAME", help=DEVICE)] = "auto",
    dtype: Annotated[str, machine_option(metavar="NAME", help=DTYPE)] = "auto",
) -> None:
    """Measures how close each method draws to full attention (dense), and how fast.

    PSNR, SSIM, MS-SSIM, LPIPS, detail and FID, of pictures from the same prompts and seeds. All are kept in RUN.

    [dim]todome eval --methods todome:2 todo:2 tome:0.5 --pictures 8 -o run[/dim]
    """
    from ..files import check_out_folder
    from ..measuring.evaluation import evaluate
    from ..measuring.methods import method_named
    from ..measuring.tables import closeness_table, table_named
    from ..measuring.verdict import THRESHOLDS
    from ..unopened import check_reduction

    paper = table_named(table) if table else None
    wanted = read_sizes(size, sizes)
    fields: dict[str, Any] = paper.fields(model, wanted) if paper else {"sizes": wanted, "methods": []}
    asked = {"pictures": pictures, "seed": seed, "steps": steps, "guidance": guidance, "scheduler": scheduler}
    asked |= {
        "loras": lora,
        "vae": vae,
        "batch": batch,
        "real": real and str(real),
        "prompts": prompts and read_prompts(prompts),
    }
    fields |= without_none(**asked) | {"methods": [*fields["methods"], *(methods or [])] or None}
    fid = fid or (paper is not None and paper.fid)
    files = {"out": out, "lpips": lpips, "inception": inception}
    check_out_folder(out)
    for name, one in product(fields["methods"] or (), fields["sizes"] or (None,)):
        check_reduction(model, one, method_named(name).loaded().reduction)
    try:
        run = evaluate(model, fid=fid, engine=cluster.cluster(device), device=device, dtype=dtype, **files, **fields)
    except KeyboardInterrupt as ended:
        raise type(ended)(f"What is drawn is in {out}: the same command continues it.") from None
    typer.echo((paper.render if paper else closeness_table)(run))
    typer.echo(f"\nDense is full attention. {THRESHOLDS}")
    typer.echo(f"Pictures: {out / 'pictures'}\nNext: todome report {out}")


def read_prompts(path: Path) -> list[str]:
    """The prompts of a file, as of one for todome batch."""
    from ..batch.rows import read_rows

    return [str(row["prompt"]) for row in read_rows(path).values()]
