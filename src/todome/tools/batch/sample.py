"""A page with some of the pictures of a batch, spread evenly over its rows, and with what failed."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from PIL import Image

from ...errors import invalid_value
from ..files import atomic_write, check_out
from ..pictures import webp_uri
from ..templates import load_template, look
from .folder import ABOUT, FAILED, MADE, Folder, Record
from .shards import open_picture

WIDEST, QUALITY = 512, 85  # pixels of a picture in the page, and of its WebP
FAILURES = 50  # that are listed


def is_batch(folder: Path) -> bool:
    return (folder / ABOUT).is_file()


def write_sample(folder: Path, out: Path | None = None, *, cases: int = 12, force: bool = False) -> Path:
    """Writes the page, finished or not as the batch is. Returns where it is."""
    path = out or folder / "report.html"
    check_out(path, ending=".html", force=force or out is None)
    records = Folder(folder).in_order()
    made = [record for record in records if record["status"] == MADE]
    if not made:
        raise invalid_value("run", str(folder), "a batch with pictures", "Nothing of this one is drawn yet")
    failed = [record for record in records if record["status"] == FAILED]
    page = load_template(Path(__file__).with_name("sample.html")).render(
        name=folder.resolve().name,
        made=len(made),
        facts=facts(made, failed),
        shown=[(one, small_uri(open_picture(folder, one))) for one in spread(made, cases)],
        failed=failed[:FAILURES],
        look=look(),
    )
    with atomic_write(path) as beside:
        beside.write_text(page, encoding="utf-8")
    return path


def facts(made: Sequence[Record], failed: Sequence[Record]) -> list[str]:
    times = [record["seconds"] for record in made if record["seconds"]]
    names = [name for field in ("model", "method") for name in sorted({record[field] for record in made})]
    workers = len({record["worker"] for record in made})
    told = [f"{len(made)} pictures", f"{len(failed)} failed", f"{workers} worker{'s' * (workers != 1)}"]
    return told + ([f"{fmean(times):.2f} s each"] if times else []) + names[:6]


def spread(records: Sequence[Record], count: int) -> list[Record]:
    """So many of them, the first and the last among them."""
    return [records[round(place)] for place in np.linspace(0, len(records) - 1, min(count, len(records)))]


def small_uri(picture: Image.Image) -> str:
    picture.thumbnail((WIDEST, WIDEST))
    return webp_uri(picture, QUALITY)
