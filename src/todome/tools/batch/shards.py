"""Shards: finished pictures packed into WebDataset files (.tar) or Parquet files, each whole or not there.

Pictures are drawn into single files first, so that whatever is interrupted loses no picture; a shard takes the place of
those that are in it. What is in which shard is said by the index; shards are read for single pictures alone.
"""

import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from ...errors import invalid_value
from ..files import atomic_write, inside
from .folder import MADE, SHARDS, Folder, Record, picture_path

KINDS = {"webdataset": ".tar", "parquet": ".parquet"}


def check_shards(kind: str | None, size: int) -> None:
    if kind is not None and kind not in KINDS:
        raise invalid_value("shards", kind, " or ".join(KINDS), "Leave it out for single PNG files")
    if size < 1:
        raise invalid_value("shard_size", size, "a whole number of at least 1", "1000 pictures are usual")
    if kind == "parquet":
        import pyarrow  # noqa: F401  # where it is missing, that is said before anything is drawn


def pack(folder: Folder, kind: str, size: int) -> None:
    """Packs the pictures that are single files, in the order of rows, so many into a shard."""
    made = [record for record in folder.in_order() if record["status"] == MADE]
    remove_singles(folder.path, (record for record in made if is_packed(record)))  # a run may have been killed before
    single = [record for record in made if picture_path(folder.path, record["key"]).is_file()]
    (folder.path / SHARDS).mkdir(exist_ok=True)
    there = [int(path.stem) for path in (folder.path / SHARDS).iterdir() if path.stem.isdecimal()]
    for at in range(0, len(single), size):
        name = f"{SHARDS}/{max(there, default=-1) + 1 + at // size:05d}{KINDS[kind]}"
        packed = [{**record, "file": name} for record in single[at : at + size]]
        with atomic_write(folder.path / name) as beside:
            (write_tar if kind == "webdataset" else write_parquet)(beside, packed, folder.path)
            folder.add(packed)  # first: a shard that the index does not know would stay beside a second one
        remove_singles(folder.path, packed)
    if kind == "parquet":
        write_table(folder.path / "index.parquet", folder.in_order())


def is_packed(record: Record) -> bool:
    return record["file"].startswith(f"{SHARDS}/")


def remove_singles(folder: Path, records: Iterable[Record]) -> None:
    for record in records:
        if inside(folder, record["file"], "file").is_file():
            picture_path(folder, record["key"]).unlink(missing_ok=True)


def write_tar(path: Path, records: Sequence[Record], folder: Path) -> None:
    """KEY.png, KEY.txt (the prompt) and KEY.json (the record), one sample after the other."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for record in records:
            parts = {"png": picture_path(folder, record["key"]).read_bytes(), "txt": record["prompt"].encode()}
            parts["json"] = json.dumps(record, ensure_ascii=False).encode()
            for ending, content in parts.items():
                member = tarfile.TarInfo(f"{record['key']}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def write_parquet(path: Path, records: Sequence[Record], folder: Path) -> None:
    """A row for each picture: its record, and `image` as the datasets library has it."""
    files = {record["key"]: picture_path(folder, record["key"]) for record in records}
    images = {key: {"bytes": file.read_bytes(), "path": file.name} for key, file in files.items()}
    write_table(path, [{**record, "image": images[record["key"]]} for record in records])


def write_table(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A Parquet file with the columns of all rows."""
    import pyarrow
    from pyarrow import parquet

    names = list(dict.fromkeys(name for row in rows for name in row))
    with atomic_write(path) as beside:
        parquet.write_table(pyarrow.table({name: [row.get(name) for row in rows] for name in names}), beside)


def open_picture(folder: Path, record: Record) -> Image.Image:
    """A picture from its own file or from its shard, which may be anything."""
    path = inside(folder, record["file"], "file")
    try:
        with picture_file(path, record["key"]) as file, Image.open(file, formats=["PNG"]) as picture:
            return picture.convert("RGB")
    except ModuleNotFoundError:
        raise
    except Exception:  # whatever a file can be that is none
        remedy = "It is missing or broken: the same todome batch draws it again"
        raise invalid_value("picture", str(path), "what the batch drew", remedy, FileNotFoundError) from None


def picture_file(path: Path, key: str) -> Any:
    if path.suffix == ".tar":
        with tarfile.open(path, "r:") as tar:
            found = tar.extractfile(f"{key}.png")
            return io.BytesIO(found.read() if found else b"")
    if path.suffix == ".parquet":
        from pyarrow import parquet

        (row,) = parquet.read_table(path, columns=["image"], filters=[("key", "==", key)]).to_pylist()
        return io.BytesIO(row["image"]["bytes"])
    return path.open("rb")
