"""Rows of a file: text with a prompt on each line, JSONL, CSV or Parquet with a column for each setting."""

import csv
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from ...errors import invalid_value
from ...plan import Plan
from ..measuring.methods import method_named
from ..pipelines import MULTIPLE, Size, check_sides
from ..settings import Settings

Row: TypeAlias = Mapping[str, Any]
COLUMNS = ("prompt", "negative", "seed", "size", "steps", "guidance", "scheduler", "method", "plan")
KINDS = "a text file with a prompt on each line, or .jsonl, .csv or .parquet with a column for each setting"


def read_rows(path: Path) -> dict[int, Row]:
    """The rows of a file by their numbers, which are those of the lines in text, JSONL and CSV."""
    reader = {".jsonl": jsonl_rows, ".ndjson": jsonl_rows, ".csv": csv_rows, ".parquet": parquet_rows}
    try:
        rows = reader.get(path.suffix.lower(), text_rows)(path)
    except UnicodeDecodeError:
        raise invalid_value("prompts", str(path), KINDS, "It is not text in UTF-8") from None
    except OSError:
        raise invalid_value("prompts", str(path), KINDS, "It cannot be read", FileNotFoundError) from None
    if not rows:
        raise invalid_value("prompts", str(path), KINDS, "This one has no rows")
    check_columns(path, rows.values())
    return rows


def text_rows(path: Path) -> dict[int, Row]:
    """Without lines that are empty or begin with #."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    stripped = ((number, line.strip()) for number, line in lines)
    return {number: {"prompt": line} for number, line in stripped if line and not line.startswith("#")}


def jsonl_rows(path: Path) -> dict[int, Row]:
    rows: dict[int, Row] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            rows[number] = parsed_line(path, number, line)
    return rows


def parsed_line(path: Path, number: int, line: str) -> Row:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        example = '{"prompt": "a rose", "seed": 7}'
        raise invalid_value(f"{path.name} line {number}", line[:80], f"an object in JSON, such as {example}", "Mend it")
    return found


def csv_rows(path: Path) -> dict[int, Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader, rows = csv.DictReader(file), {}
        for row in reader:
            if None in row:
                allowed = f"{len(reader.fieldnames or [])} fields, as in the first line"
                raise invalid_value(f"{path.name} line {reader.line_num}", row[None], allowed, "Quote commas")
            rows[reader.line_num] = row
    return rows


def parquet_rows(path: Path) -> dict[int, Row]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except pyarrow.ArrowInvalid:
        raise invalid_value("prompts", str(path), KINDS, "It is no whole Parquet file") from None
    known = [name for name in table.column_names if name in COLUMNS] or table.column_names
    return dict(enumerate(table.select(known).to_pylist(), start=1))


def check_columns(path: Path, rows: Iterable[Row]) -> None:
    """Refuses a file without prompts, and notes what is not used: a misspelt column would change pictures."""
    found = dict.fromkeys(str(name) for row in rows for name in row)
    if "prompt" not in found:
        allowed = f"the columns {', '.join(COLUMNS)}, of which prompt is needed"
        raise invalid_value("prompts", str(path), allowed, f"It has {', '.join(found) or 'none'}: rename one")
    unused = [name for name in found if name not in COLUMNS]
    if unused:
        warnings.warn(f"{path.name} has columns that are not used: {', '.join(unused)}.", stacklevel=2)


def row_settings(number: int, row: Row, base: Settings) -> Settings:
    """The settings of a row; what it leaves empty is as in the base."""
    given = {name: row[name] for name in COLUMNS if row.get(name) not in (None, "")}
    if {"method", "plan"} <= given.keys():
        both = f"{given['method']!r} and {given['plan']!r}"
        raise ValueError(f"Row {number}: it has both a method and a plan, {both}: leave one of them empty.")
    values: dict[str, Any] = {}
    for name, value in given.items():
        values |= read_value(number, name, value)
    try:
        return replace(base, **{"prompt": "", **values})
    except ValueError as error:
        raise ValueError(f"Row {number}: {error}") from None


def read_value(number: int, name: str, value: Any) -> dict[str, Any]:
    """The fields of Settings that a cell means."""
    reader, allowed = READERS[name]
    try:
        return reader(value)
    except (TypeError, ValueError) as error:
        said = str(error)
        told = said if " cannot be used. " in said or " does not work" in said else ""
        raise ValueError(f"Row {number}: {told or invalid_value(name, value, allowed, 'Mend the row')}") from None


def whole(value: Any) -> int:
    if isinstance(value, bool) or int(value) != float(value):
        raise ValueError
    return int(value)


def size_of(value: Any) -> Size:
    """512, "512", "512x768" or [512, 768]."""
    sides = (
        value.lower().split("x") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
    )
    numbers = [whole(side) for side in sides]
    width, height = numbers * 2 if len(numbers) == 1 else numbers
    check_sides((width, height), MULTIPLE)
    return width, height


def method_fields(value: Any) -> dict[str, Any]:
    method = method_named(str(value))
    if method.plan:
        return plan_fields(method.plan)
    if method.peers:
        allowed = "dense, todome:2, todo:2, tome:0.5 and the like, which todome draws itself"
        raise invalid_value("method", value, allowed, "Compare the packages of others with todome eval")
    return {"reduction": method.reduction} | ({"steps": method.steps} if method.steps else {})


@lru_cache(maxsize=64)  # thousands of rows may name one
def plan_fields(value: str) -> dict[str, Any]:
    return {"reduction": Plan.load(value)}


READERS: dict[str, tuple[Callable[[Any], dict[str, Any]], str]] = {
    "prompt": (lambda value: {"prompt": str(value)}, "a text"),
    "negative": (lambda value: {"negative": str(value)}, "a text"),
    "seed": (lambda value: {"seed": whole(value)}, "a whole number"),
    "size": (lambda value: {"size": size_of(value)}, "pixels, such as 512 or 512x768"),
    "steps": (lambda value: {"steps": whole(value)}, "a whole number"),
    "guidance": (lambda value: {"guidance": float(value)}, "a number"),
    "scheduler": (lambda value: {"scheduler": str(value)}, "the name of a scheduler"),
    "method": (method_fields, "the name of a method"),
    "plan": (lambda value: plan_fields(str(value)), "a file that todome tune wrote"),
}
