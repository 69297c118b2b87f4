"""Rows of a file: text with a prompt on each line, JSONL, CSV or Parquet with a column for each setting."""

import csv
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from ...errors import invalid_value
from ...levers.plan import Plan
from ..measuring.methods import method_named
from ..pipelines import MULTIPLE, Size, check_sides
from ..settings import Settings
from .folder import read_object

Row: TypeAlias = Mapping[str, Any]
COLUMNS = ("prompt", "negative", "seed", "size", "steps", "guidance", "scheduler", "method", "plan")
KINDS = "a text file with a prompt on each line, or .jsonl, .csv or .parquet with a column for each setting"


def read_rows(path: Path) -> dict[int, Row]:
    """The rows of a file by their numbers, which are those of the lines in text, JSONL and CSV."""
    reader = {".jsonl": jsonl_rows, ".ndjson": jsonl_rows, ".csv": csv_rows, ".parquet": parquet_rows}
    try:
        rows = reader.get(path.suffix.lower(), text_rows)(path)
    except (csv.Error, OSError, ValueError) as error:
        remedy = f"It cannot be read: {str(getattr(error, 'strerror', error)).splitlines()[0]}"
        kind = FileNotFoundError if isinstance(error, OSError) else ValueError
        raise invalid_value("prompts", str(path), KINDS, remedy, kind) from None
    if not rows:
        raise invalid_value("prompts", str(path), KINDS, "This one has no rows")
    check_rows(path, rows)
    return rows


def lines_of(path: Path) -> dict[int, str]:
    """Lines that are not empty, by their numbers."""
    with path.open(encoding="utf-8-sig") as file:
        return {number: line.strip() for number, line in enumerate(file, start=1) if line.strip()}


def text_rows(path: Path) -> dict[int, Row]:
    """Without lines that begin with #."""
    return {number: {"prompt": line} for number, line in lines_of(path).items() if not line.startswith("#")}


def jsonl_rows(path: Path) -> dict[int, Any]:
    return {number: read_object(line) or line for number, line in lines_of(path).items()}


def csv_rows(path: Path) -> dict[int, Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader, rows = csv.DictReader(file), {}
        for row in reader:
            rows[reader.line_num] = row
        return rows


def parquet_rows(path: Path) -> dict[int, Row]:
    from pyarrow import parquet

    names = parquet.read_schema(path).names
    table = parquet.read_table(path, columns=[name for name in names if name in COLUMNS] or names)
    return dict(enumerate(table.to_pylist(), start=1))


def check_rows(path: Path, rows: Mapping[int, Any]) -> None:
    """Refuses lines that are no rows, and rows without prompts; notes a column that is not used, as one misspelt is."""
    for number, row in rows.items():
        surplus = row.get(None) if isinstance(row, dict) else row[:80]
        if surplus:
            allowed = "an object in JSON, or as many fields as the first line of a CSV file has"
            raise invalid_value(f"{path.name} line {number}", surplus, allowed, "Mend the line; commas are quoted")
    found = dict.fromkeys(str(name) for row in rows.values() for name in row)
    if "prompt" not in found:
        allowed = f"the columns {', '.join(COLUMNS)}, of which prompt is needed"
        raise invalid_value("prompts", str(path), allowed, f"It has {', '.join(found) or 'none'}: rename one")
    unused = [name for name in found if name not in COLUMNS]
    if unused:
        warnings.warn(f"{path.name} has columns that are not used: {', '.join(unused)}.", stacklevel=2)


def row_settings(number: int, row: Row, base: Settings, load: Callable[[str], Plan] = Plan.load) -> Settings:
    """The settings of a row; what it leaves empty is as in its method or plan, or else as in the base."""
    given = {name: row[name] for name in COLUMNS if row.get(name) not in (None, "")}
    method, plan = given.pop("method", None), given.pop("plan", None)
    try:
        if method is not None and plan is not None:
            raise ValueError(f"it has both a method and a plan, {method!r} and {plan!r}: leave one of them empty.")
        if method is not None:
            base = with_method(base, str(method), load)
        elif plan is not None:
            base = with_plan(base, str(plan), load)
        return replace(base, **{"prompt": "", **{name: read_value(name, value) for name, value in given.items()}})
    except ValueError as error:
        raise ValueError(f"Row {number}: {error}") from None


def read_value(name: str, value: Any) -> Any:
    """The value that a cell means."""
    reader, allowed = READERS[name]
    try:
        found = reader(value)
    except (OverflowError, TypeError, ValueError):
        raise invalid_value(name, value, allowed, "Mend the row") from None
    if name == "size":
        check_sides(found, MULTIPLE)
    return found


def whole(value: Any) -> int:
    found = int(value)
    if isinstance(value, bool) or (isinstance(value, float) and found != value):
        raise ValueError
    return found


def size_of(value: Any) -> Size:
    """512, "512", "512x768" or [512, 768]."""
    sides = value.lower().split("x") if isinstance(value, str) else value if isinstance(value, list) else [value]
    width, height = map(whole, sides * 2 if len(sides) == 1 else sides)
    return width, height


READERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "prompt": (str, "a text"),
    "negative": (str, "a text"),
    "seed": (whole, "a whole number"),
    "size": (size_of, "pixels, such as 512 or 512x768"),
    "steps": (whole, "a whole number"),
    "guidance": (float, "a number"),
    "scheduler": (str, "the name of a scheduler"),
}


def with_method(base: Settings, name: str, load: Callable[[str], Plan]) -> Settings:
    method = method_named(name)
    if method.peers:
        allowed = "dense, todome:2, todo:2, tome:0.5 and the like, which todome draws itself"
        raise invalid_value("method", name, allowed, "Compare the packages of others with todome eval")
    if method.plan:
        return with_plan(base, method.plan, load)
    return replace(base, reduction=method.reduction, steps=method.steps or base.steps)


def with_plan(base: Settings, file: str, load: Callable[[str], Plan]) -> Settings:
    """The base with a plan and what it was measured with; all rows of a batch are drawn with its LoRAs and its VAE."""
    found = base.with_plan(file, load)
    for name in ("loras", "vae"):
        own, needed = getattr(base, name), getattr(found, name)
        if needed and needed != own:
            allowed = f"a plan with the {name} of this batch ({own or 'none'}); this was measured with {needed}"
            raise invalid_value("plan", file, allowed, "Draw its rows in a batch of their own, with --plan")
    return replace(found, loras=base.loras, vae=base.vae)
