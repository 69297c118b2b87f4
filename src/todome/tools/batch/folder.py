"""The folder of a batch. Every picture is whole or not there, and in the index at most once.

FOLDER/batch.json                     the model, versions, date
FOLDER/pictures/3f/3fa9....png        a picture, by its key; its settings are in it
FOLDER/shards/00000.tar, .parquet     the same pictures, packed, with --shards
FOLDER/index.jsonl                    a line for each row: what was made and how long it took, or why it failed

While pictures are drawn, lines are added to the index as they come. A line that a killed process has cut off is left
out, and a picture without a line is found by its name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from filelock import FileLock, Timeout

from ...errors import invalid_value
from ..files import atomic_write
from ..metadata import versions_of
from ..pipelines import weights_of

Record: TypeAlias = dict[str, Any]
MADE, FAILED = "made", "failed"
ABOUT, INDEX, LOCK = "batch.json", "index.jsonl", ".lock"


def picture_path(folder: Path, key: str) -> Path:
    return folder / "pictures" / key[:2] / f"{key}.png"


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

    def add(self, records: Iterable[Record]) -> None:
        """Lines that are there as soon as this returns."""
        lines = []
        for record in records:
            self.records[record["key"]] = record
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        with (self.path / INDEX).open("a", encoding="utf-8") as index:
            index.write("".join(lines))

    def tidy(self) -> None:
        """Writes the index anew, a line for each key in the order of rows."""
        ordered = sorted(self.records.values(), key=lambda record: (record["row"], record["seed"], record["key"]))
        with atomic_write(self.path / INDEX) as beside:
            beside.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in ordered), encoding="utf-8")
        self.records = {record["key"]: record for record in ordered}


@contextmanager
def open_folder(path: Path, model: str) -> Iterator[Folder]:
    """The folder of a new batch or of one that goes on, for this process alone."""
    check_folder(path)
    path.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path / LOCK, timeout=0):
            write_about(path, model)
            yield Folder(path)
    except Timeout:
        remedy = "Wait for it, or choose another folder"
        raise invalid_value("out", str(path), "a folder that no other batch is drawing into", remedy) from None


def check_folder(path: Path) -> None:
    if path.exists() and not (path.is_dir() and ((path / ABOUT).is_file() or is_empty(path))):
        allowed = "a new folder, or that of a batch"
        raise invalid_value("out", str(path), allowed, "Choose another name", FileExistsError)


def is_empty(path: Path) -> bool:
    return all(child.name == LOCK for child in path.iterdir())


def write_about(path: Path, model: str) -> None:
    """Refuses to go on with other weights of the embedded model: pictures of two trainings would be mixed."""
    file, mine = path / ABOUT, weights_of(model)
    found: Mapping[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    if mine and found.get("weights", mine["weights"]) != mine["weights"]:
        raise invalid_value("weights", mine["weights"], f"{found['weights']!r}, as in {file}", "Use another folder")
    if not found:
        with atomic_write(file) as beside:
            content = {"model": model, **mine, "versions": versions_of("diffusers")}
            beside.write_text(json.dumps(content, indent=1) + "\n")


def read_index(path: Path) -> list[Record]:
    """The lines of an index; a cut-off last one is taken away, so that the next does not continue it."""
    file = path / INDEX
    if not file.is_file():
        return []
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with atomic_write(file) as beside:
            beside.write_bytes(whole)
    return [json.loads(line) for line in whole.decode("utf-8").splitlines() if line.strip()]
