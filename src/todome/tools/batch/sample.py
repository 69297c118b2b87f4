"""A page with some of the pictures of a batch, spread evenly over its rows, and with what failed."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from PIL import Image

from ...errors import invalid_value
from ..files import atomic_write, check_out
from ..pictures import webp_uri
from ..templates import load_template, look
from .folder import ABOUT, FAILED, MADE, Record, read_index

WIDEST, QUALITY = 512, 85  # pixels of a picture in the page, and of its WebP
FAILURES = 50  # that are listed


class SampledPicture(NamedTuple):
    record: Record
    uri: str


def is_batch(folder: Path) -> bool:
    return (folder / ABOUT).is_file()


def write_sample(folder: Path, out: Path | None = None, *, cases: int = 12, force: bool = False) -> Path:
    """Writes the page, finished or not as the batch is. Returns where it is."""
    path = out or folder / "report.html"
    check_out(path, ending=".html", force=force or out is None)
    records = list({record["key"]: record for record in read_index(folder)}.values())
    made = [record for record in records if record["status"] == MADE]
    if not made:
        raise invalid_value("run", str(folder), "a batch with pictures", "Nothing of this one is drawn yet")
    failed = [record for record in records if record["status"] == FAILED]
    page = load_template(Path(__file__).with_name("sample.html")).render(
        name=folder.resolve().name,
        made=len(made),
        facts=facts(made, failed),
        shown=[SampledPicture(one, small_uri(open_made(folder, one))) for one in spread(made, cases)],
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


def spread(records: Sequence[Record], count: int) -> list[Any]:
    """So many of them, the first and the last among them."""
    if len(records) <= count:
        return list(records)
    return [records[round(i * (len(records) - 1) / max(1, count - 1))] for i in range(count)]


def open_made(folder: Path, record: Record) -> Image.Image:
    """A picture from its own file or from its shard."""
    path = folder / record["file"]
    try:
        with Image.open(io.BytesIO(picture_bytes(path, record["key"]))) as picture:
            return picture.convert("RGB")
    except (OSError, KeyError, tarfile.TarError):
        remedy = "It is missing or broken: the same todome batch draws it again"
        raise invalid_value("picture", str(path), "what the batch drew", remedy, FileNotFoundError) from None


def picture_bytes(path: Path, key: str) -> bytes:
    if path.suffix == ".tar":
        with tarfile.open(path) as tar:
            file = tar.extractfile(f"{key}.png")
            return file.read() if file else b""
    if path.suffix == ".parquet":
        from pyarrow import parquet

        (row,) = parquet.read_table(path, columns=["image"], filters=[("key", "==", key)]).to_pylist()
        return row["image"]["bytes"]
    return path.read_bytes()


def small_uri(picture: Image.Image) -> str:
    picture.thumbnail((WIDEST, WIDEST))
    return webp_uri(picture, QUALITY)
