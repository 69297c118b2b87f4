"""`todome batch`: many pictures from a file of rows, here or on a Ray cluster."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..pipelines import EMBEDDED, MULTIPLE, check_sides
from ..settings import Settings, recommended_settings
from .generate import check_target, picture_bytes
from .options import EngineOptions, PictureOptions, by_default, drawing_option, machine_option, with_groups

PROMPTS = (
    "A text file with a prompt on each line, or .jsonl, .csv or .parquet with the columns prompt, negative, seed, "
    "size, steps, guidance, scheduler, method or plan. The options are for what a row leaves empty."
)
COUNT = "Pictures of each row, with its seed, seed + 1, ..."
BATCH = "Pictures drawn at once; more are faster on a GPU."
OUT = "The folder of the batch. One that was interrupted is continued."
SHARDS = "Pack the pictures into files: webdataset (.tar) or parquet." + by_default("single PNG files")
FORCE = "Draw even what seems too large for the disk."


@with_groups
def batch(
    prompts: Annotated[Path, typer.Argument(metavar="PROMPTS", help=PROMPTS)],
    *,
    picture: PictureOptions,
    count: Annotated[int, drawing_option(min=1, help=COUNT)] = 1,
    together: Annotated[int, drawing_option("--batch", min=1, help=BATCH)] = 1,
    out: Annotated[Path, machine_option("--out", "-o", metavar="FOLDER", help=OUT)],
    shards: Annotated[str | None, machine_option(metavar="KIND", help=SHARDS)] = None,
    shard_size: Annotated[int, machine_option(min=1, help="Pictures in a shard.")] = 1000,
    retry: Annotated[bool, machine_option("--retry", help="Draw again what failed before.")] = False,
    fail_fast: Annotated[bool, machine_option("--fail-fast", help="End at the first row that fails.")] = False,
    cluster: EngineOptions,
    force: Annotated[bool, machine_option("--force", help=FORCE)] = False,
) -> None:
    """Makes a picture of each row of a file, with attention on fewer tokens; thousands on many GPUs.

    What was drawn is not drawn again: the same command continues a batch that was interrupted. FOLDER/index.jsonl says
    what was made, how long it took, and what failed and why.

    [dim]todome batch prompts.txt --size 512 -o pictures[/dim]
    [dim]todome batch prompts.csv --model sd15.safetensors --batch 8 --ray --shards webdataset -o pictures[/dim]
    """
    from ..batch.jobs import jobs_from
    from ..batch.rows import read_rows
    from ..batch.run import Choices

    base = picture.settings(recommended_settings(picture.model or EMBEDDED))
    choices = Choices(together, retry, fail_fast, shards, shard_size)
    rows = read_rows(prompts)
    jobs = jobs_from(rows, base, count)
    if len(jobs) < len(rows) * count:
        typer.echo(f"Note: {len(rows) * count - len(jobs)} rows say the same as others: drawn once.", err=True)
    check_all(jobs, base, out, here=cluster.ray is None, force=force)
    draw(jobs, base, out, cluster.engine(base.device), choices)


def check_all(jobs: Any, base: Settings, out: Path, here: bool, force: bool) -> None:
    """Refuses what cannot work, as far as it can be known before a model is opened."""
    from ..batch.folder import check_folder
    from ..checkpoints.opening import check_parts
    from ..files import check_room

    check_folder(out)
    settings = [job.settings for job in jobs.values()]
    if base.size:
        check_sides(base.size, MULTIPLE)
    if here:
        check_target(base)
    else:
        check_parts(base.loras, base.vae)
    if not force and not out.exists():
        there = next(parent for parent in out.absolute().parents if parent.is_dir())
        check_room(there, sum(map(picture_bytes, settings)))


def draw(jobs: Any, base: Settings, out: Path, engine: Any, choices: Any) -> None:
    """One bar for the whole, then what was made and what failed."""
    from ..batch.folder import INDEX, read_index
    from ..batch.run import RowFailed, failures_in, run_batch
    from ..progress import progress_bar

    try:
        with progress_bar() as bar:
            bar.doing(f"Loading {base.model}")

            def show(tally: Any) -> None:
                if tally.made or tally.failed:
                    bar.steps(f"Drawing: {tally}", tally.there + tally.made + tally.failed, tally.total)

            tally = run_batch(jobs, base, out, engine, choices, show)
    except KeyboardInterrupt as ended:
        raise type(ended)(f"What is drawn is in {out}: the same command continues it.") from None
    except RowFailed as error:
        raise ValueError(f"{error} What was drawn before is in {out}.") from None
    before = f", {tally.there} there before" if tally.there else ""
    typer.echo(f"{out}: {tally.made} pictures made{before}; {tally}")
    typer.echo(f"Index: {out / INDEX}\nNext: todome report {out}")
    if tally.failed:
        typer.echo(f"Error: {failures_in(out, read_index(out))}", err=True)
        raise typer.Exit(1)
