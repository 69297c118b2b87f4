"""The folder of a batch. Every picture is whole or not there, and in the index at most once.

FOLDER/batch.json                     the model, versions, date
FOLDER/pictures/3f/3fa9....png        a picture, by its key; its settings are in it
FOLDER/shards/00000.tar, .parquet     the same pictures, packed, with --shards
FOLDER/index.jsonl                    a line for each row: what was made and how long it took, or why it failed

While pictures are drawn, lines are added to the index as they come. A line that a killed process has cut off is left
out, and a picture without a line is found by its name. A folder may come from anywhere: its index is checked when it is
read, and no name or link in it may lead out of it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from filelock import FileLock, Timeout

from ...errors import invalid_value
from ..files import atomic_write, check_out_folder, inside
from ..machine import versions_of
from ..pipelines import weights_of

Record: TypeAlias = dict[str, Any]
MADE, FAILED = "made", "failed"
ABOUT, INDEX, LOCK, SHARDS = "batch.json", "index.jsonl", ".lock", "shards"
FIELDS = {  # of a record, which are read
    **dict.fromkeys(("key", "prompt", "model", "method", "worker"), str),
    **dict.fromkeys(("row", "seed"), int),
    **dict.fromkeys(("width", "height", "steps"), int | None),
}
LONGEST = 2**22  # bytes of a record's line


def picture_path(folder: Path, key: str) -> Path:
    """Where the picture of a key is; a key that is none could name any file."""
    if not is_key(key):
        raise invalid_value("key", key, "20 hexadecimal digits", "Use a folder that todome batch has made")
    return inside(folder, f"pictures/{key[:2]}/{key}.png", "picture")


def is_key(key: object) -> bool:
    return isinstance(key, str) and re.fullmatch("[0-9a-f]{20}", key) is not None


class Folder:
    """The folder of a batch, and what its index says of each key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = {record["key"]: record for record in read_index(path)}

    def is_made(self, key: str) -> bool:
        """Whether the index has the picture, and the picture is still where the index says."""
        record = self.records.get(key)
        return record is not None and record["status"] == MADE and (self.path / record["file"]).is_file()

    def has_failed(self, key: str) -> bool:
        return key in self.records and self.records[key]["status"] == FAILED

    def in_order(self) -> list[Record]:
        return sorted(self.records.values(), key=lambda record: (record["row"], record["seed"], record["key"]))

    def add(self, records: Sequence[Record]) -> None:
        """Lines that are there as soon as this returns."""
        self.records |= {record["key"]: record for record in records}
        with (self.path / INDEX).open("a", encoding="utf-8") as index:
            index.write(as_lines(records))

    def tidy(self) -> None:
        """Writes the index anew, a line for each key in the order of rows."""
        with atomic_write(self.path / INDEX) as beside:
            beside.write_text(as_lines(self.in_order()), encoding="utf-8")


def as_lines(records: Iterable[Record]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


@contextmanager
def open_folder(path: Path, model: str) -> Iterator[Folder]:
    """The folder of a new batch or of one that goes on, for this process alone."""
    check_folder(path)
    path.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path / LOCK, timeout=0):
            write_about(path, model)
            folder = Folder(path)
            folder.tidy()  # what is added to a line that was cut off would be lost with it
            yield folder
    except Timeout:
        remedy = "Wait for it, or choose another folder"
        raise invalid_value("out", str(path), "a folder that no other batch is drawing into", remedy) from None


def check_folder(path: Path) -> None:
    """Refuses what is no folder of a batch, has links that lead out of it, or cannot be written."""
    if path.exists() and not (path.is_dir() and ((path / ABOUT).is_file() or is_empty(path))):
        allowed = "a new folder, or that of a batch"
        raise invalid_value("out", str(path), allowed, "Choose another name", FileExistsError)
    for name in (ABOUT, INDEX, LOCK, SHARDS, "pictures"):
        inside(path, name, "link in out")
    check_out_folder(path)


def is_empty(path: Path) -> bool:
    return all(child.name == LOCK for child in path.iterdir())


def write_about(path: Path, model: str) -> None:
    """Refuses to go on with other weights of the embedded model: pictures of two trainings would be mixed."""
    file, mine = path / ABOUT, weights_of(model)
    if not file.is_file():
        with atomic_write(file) as beside:
            content = {"model": model, **mine, "versions": versions_of("diffusers")}
            beside.write_text(json.dumps(content, indent=1) + "\n")
        return
    found = read_object(file.read_bytes()[:LONGEST])
    if found is None:
        raise invalid_value("out", str(path), "a new folder, or that of a batch", f"Its {ABOUT} is broken")
    if mine and found.get("weights", mine["weights"]) != mine["weights"]:
        raise invalid_value("weights", mine["weights"], f"{found['weights']!r}, as in {file}", "Use another folder")


def read_index(path: Path) -> list[Record]:
    """The lines of an index but a cut-off last one, each checked: what they name is opened, packed and removed."""
    file = inside(path, INDEX, "index")
    if not file.is_file():
        return []
    with file.open("rb") as index:
        lines = enumerate(iter(partial(index.readline, LONGEST), b""), start=1)
        return [read_record(path, *one) for one in lines if one[1].endswith(b"\n") or len(one[1]) == LONGEST]


def read_record(folder: Path, number: int, line: bytes) -> Record:
    record, where = read_object(line), f"{INDEX} line {number}"
    if record is None or not is_record(record):
        remedy = "Take the line out, and its picture is drawn again"
        raise invalid_value(where, line[:80].decode(errors="replace").strip(), "what todome batch wrote", remedy)
    if record["status"] == MADE:
        inside(folder, record["file"], f"{where}: file")
    return record


def is_record(found: Record) -> bool:
    own = {**FIELDS, **({"error": str} if found.get("status") == FAILED else {"file": str, "seconds": float | None})}
    right = all(name in found and isinstance(found[name], kind) for name, kind in own.items())
    return right and is_key(found["key"]) and found.get("status") in (MADE, FAILED)


def read_object(content: bytes | str) -> dict[str, Any] | None:
    """The object in some JSON; None where there is something else."""
    try:
        found = json.loads(content)
    except (RecursionError, ValueError):
        return None
    return found if isinstance(found, dict) else None
