"""Folders of batches that others made: what they say and where their links lead is checked before it is followed."""

import io
import json
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made import index, write_prompts
from PIL import Image
from typer.testing import CliRunner

from todome.tools.commands import app

KEY = "0123456789abcdef0123"
RECORD: dict[str, Any] = {
    "key": KEY,
    "row": 1,
    "prompt": "a rose",
    "seed": 0,
    "steps": 2,
    "model": "m",
    "width": 8,
    "height": 8,
    "method": "dense",
    "status": "made",
    "file": f"pictures/01/{KEY}.png",
    "worker": "cpu",
    "seconds": 0.1,
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Somebody's picture beside the folder of the batch."""
    path = tmp_path / f"{KEY}.png"
    Image.new("RGB", (8, 8)).save(path)
    return path


def write_folder(line: Any, folder: Path = Path("out")) -> None:
    folder.mkdir()
    (folder / "batch.json").write_text("{}")
    (folder / "index.jsonl").write_text((line if isinstance(line, str) else json.dumps(line)) + "\n")


def forged(**changes: Any) -> dict[str, Any]:
    return {**RECORD, **changes}


LINES = {
    "a key that is a path": forged(key="../../KEY"),
    "a file above": forged(file=f"../{KEY}.png"),
    "an absolute file": forged(file=f"/tmp/{KEY}.png"),
    "a file that no system has": forged(file="a\0b"),
    "a row that is no number": forged(row="first"),
    "a model that is no name": forged(model={"a": 1}),
    "times that are none": forged(seconds="long"),
    "a failure without words": forged(status="failed", error=None),
    "no status": forged(status="lost"),
    "no JSON": "{",
    "deep JSON": "[" * 100_000,
    "huge JSON": json.dumps(forged(prompt="x" * 5_000_000)),
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_an_index_that_todome_did_not_write_is_refused(batch: Callable[..., Any], victim: Path, line: Any):
    write_folder(line)
    write_prompts(1)
    drawn = batch("prompts.txt", "-o", "out", "--shards", "webdataset")
    reported = CliRunner().invoke(app, ["report", "out"])
    for result in (drawn, reported):
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: index.jsonl line 1"), result.stderr
    assert victim.is_file()
    assert not list(Path("out").rglob("*.png"))


def test_a_shard_of_others_removes_nothing(batch: Callable[..., Any], victim: Path):
    """Not even where the shard gives the path of a picture as its key."""
    Path("out/shards").mkdir(parents=True)
    Path("out/batch.json").write_text("{}")
    content = json.dumps(forged(key=str(victim.with_suffix("")))).encode()
    with tarfile.open("out/shards/00000.tar", "w") as tar:
        member = tarfile.TarInfo(f"{KEY}.json")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    before = Path("out/shards/00000.tar").read_bytes()
    write_prompts(1)
    assert batch("prompts.txt", "-o", "out", "--shards", "webdataset").exit_code == 0
    assert victim.is_file()
    assert Path("out/shards/00000.tar").read_bytes() == before
    assert [record["file"] for record in index()] == ["shards/00001.tar"]


@pytest.mark.parametrize("name", ["pictures", "shards", "index.jsonl", ".lock", "batch.json"])
def test_a_link_that_leads_out_of_the_folder_is_refused(batch: Callable[..., Any], tmp_path: Path, name: str):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("{}") if "." in name else elsewhere.mkdir()
    write_folder(RECORD)
    Path("out", name).unlink(missing_ok=True)
    Path("out", name).symlink_to(elsewhere)
    write_prompts(1)
    result = batch("prompts.txt", "-o", "out", "--shards", "webdataset")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: link in out=")
    assert (list(elsewhere.iterdir()) if elsewhere.is_dir() else elsewhere.read_text()) in ([], "{}")


def test_a_picture_behind_a_link_is_neither_shown_nor_removed(batch: Callable[..., Any], victim: Path):
    write_folder(RECORD)
    Path("out/pictures").mkdir()
    Path("out/pictures/01").symlink_to(victim.parent)
    write_prompts(1)
    for result in (batch("prompts.txt", "-o", "out"), CliRunner().invoke(app, ["report", "out"])):
        assert (result.exit_code, result.stderr.startswith("Error: index.jsonl line 1: file=")) == (1, True)
    assert victim.is_file()


@pytest.mark.parametrize("width", [8, 2**15], ids=["no whole picture", "a picture of a gigapixel"])
def test_what_is_no_picture_is_not_shown(batch: Callable[..., Any], width: int):
    write_folder(RECORD)
    picture = Path("out", RECORD["file"])
    picture.parent.mkdir(parents=True)
    head = b"IHDR" + struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head)))
    result = CliRunner().invoke(app, ["report", "out"])
    assert (result.exit_code, result.stderr.startswith("Error: picture=")) == (1, True)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, b"no tar"])
def test_a_member_of_a_shard_that_is_no_picture_is_not_shown(batch: Callable[..., Any], kind: bytes):
    write_folder(forged(file="shards/00000.tar"))
    Path("out/shards").mkdir()
    with tarfile.open("out/shards/00000.tar", "w") as tar:
        member = tarfile.TarInfo(f"{KEY}.png")
        member.type, member.linkname = kind[:1], f"{KEY}.png"
        tar.addfile(member)
    if kind == b"no tar":
        Path("out/shards/00000.tar").write_bytes(kind)
    result = CliRunner().invoke(app, ["report", "out"])
    assert (result.exit_code, result.stderr.startswith("Error: picture=")) == (1, True)


def test_a_folder_that_says_it_is_a_batch_and_is_none(batch: Callable[..., Any]):
    write_folder(RECORD)
    Path("out/batch.json").write_text('["a batch"]')
    write_prompts(1)
    result = batch("prompts.txt", "-o", "out")
    assert (result.exit_code, result.stderr.startswith("Error: out='out' cannot be used.")) == (1, True)


def test_a_prompt_with_a_line_separator(batch: Callable[..., Any]):
    """JSON leaves these two as they are; they end no line of the index."""
    Path("rows.jsonl").write_text(json.dumps({"prompt": "a rose\u2028and\x85more"}, ensure_ascii=False) + "\n")
    for made in (1, 0):
        result = batch("rows.jsonl", "-o", "out")
        assert result.stdout.startswith(f"out: {made} pictures made"), result.stderr
    assert [record["prompt"] for record in index()] == ["a rose\u2028and\x85more"]
