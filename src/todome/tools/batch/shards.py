"""Shards: finished pictures packed into WebDataset files (.tar) or Parquet files, each whole or not there.

Pictures are drawn into single files first, so that whatever is interrupted loses no picture; a shard takes the place of
those that are in it.
"""

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import invalid_value
from ..engines import Place
from ..files import atomic_write
from .folder import Record, picture_path

KINDS = {"webdataset": ".tar", "parquet": ".parquet"}


def check_shards(kind: str | None, size: int) -> None:
    if kind is not None and kind not in KINDS:
        raise invalid_value("shards", kind, " or ".join(KINDS), "Leave it out for single PNG files")
    if size < 1:
        raise invalid_value("shard_size", size, "a whole number of at least 1", "1000 pictures are usual")
    if kind == "parquet":
        import pyarrow  # noqa: F401  # where it is missing, that is said before anything is drawn


@dataclass
class PackingWorker:
    """Packs pictures of a folder into a shard, and then removes their single files."""

    folder: Path
    kind: str
    needs_gpu = False

    def open(self, place: Place) -> None:
        (self.folder / "shards").mkdir(exist_ok=True)

    def close(self) -> None:
        pass

    def work(self, item: tuple[str, Sequence[Record]]) -> list[Record]:
        """The records, with the shard as their file. A shard that is there was made by a worker that was lost."""
        name, records = item
        path = self.folder / "shards" / name
        packed = [{**record, "file": f"shards/{name}"} for record in records]
        if not path.is_file():
            pictures = {one["key"]: picture_path(self.folder, one["key"]).read_bytes() for one in records}
            with atomic_write(path) as beside:
                (write_tar if self.kind == "webdataset" else write_parquet)(beside, packed, pictures)
        for record in records:
            picture_path(self.folder, record["key"]).unlink(missing_ok=True)
        return packed


def write_tar(path: Path, records: Sequence[Record], pictures: Mapping[str, bytes]) -> None:
    """KEY.png, KEY.txt (the prompt) and KEY.json (the record), one sample after the other."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for record in records:
            parts = {"png": pictures[record["key"]], "txt": record["prompt"].encode()}
            parts["json"] = json.dumps(record, ensure_ascii=False).encode()
            for ending, content in parts.items():
                member = tarfile.TarInfo(f"{record['key']}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def write_parquet(path: Path, records: Sequence[Record], pictures: Mapping[str, bytes]) -> None:
    """A row for each picture: its record, and `image` as the datasets library has it."""
    import pyarrow
    from pyarrow import parquet

    rows: list[dict[str, Any]] = []
    for record in records:
        image = {"bytes": pictures[record["key"]], "path": f"{record['key']}.png"}
        rows.append({**record, "image": image})
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def write_index_table(path: Path, records: Sequence[Record]) -> None:
    """The index as one Parquet file, with the columns of all records."""
    import pyarrow
    from pyarrow import parquet

    names = list(dict.fromkeys(name for record in records for name in record))
    rows = [{name: record.get(name) for name in names} for record in records]
    with atomic_write(path) as beside:
        parquet.write_table(pyarrow.Table.from_pylist(rows), beside)


def shards_to_make(folder: Path, kind: str, size: int, records: Sequence[Record]) -> list[tuple[str, Sequence[Record]]]:
    """Names and records of new shards, for pictures that are in single files, in their order."""
    single = [one for one in records if picture_path(folder, one["key"]).is_file()]
    number = 1 + max((int(path.stem) for path in folder.glob("shards/[0-9]*.*")), default=-1)
    parts = [single[at : at + size] for at in range(0, len(single), size)]
    return [(f"{number + i:05d}{KINDS[kind]}", part) for i, part in enumerate(parts)]


def packed_records(folder: Path) -> list[Record]:
    """Records of all pictures in shards, read from these."""
    found: list[Record] = []
    for path in sorted(folder.glob("shards/[0-9]*.tar")):
        with tarfile.open(path) as tar:
            members = [member for member in tar if member.name.endswith(".json")]
            found += [json.loads(file.read()) for member in members if (file := tar.extractfile(member))]
    for path in sorted(folder.glob("shards/[0-9]*.parquet")):
        from pyarrow import parquet

        names = [name for name in parquet.read_schema(path).names if name != "image"]
        found += parquet.read_table(path, columns=names).to_pylist()
    return found
