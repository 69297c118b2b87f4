"""Measurements in a file, one line for each: what was measured, under which conditions, and what was found.

A line is written as soon as its measurement is made. A run that was interrupted finds all of them again, and so does
one with another budget. Lines of other conditions (model, size, steps, device, ...) are left alone.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FILE = "measurements.jsonl"


class Records:
    """What was measured under some conditions. Without a folder it is forgotten with the object."""

    def __init__(self, conditions: Mapping[str, Any], folder: Path | None = None) -> None:
        self.conditions = hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()[:16]
        self.path = None if folder is None else folder / FILE
        self.found: dict[str, Any] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.found = self._read()

    def _read(self) -> dict[str, Any]:
        assert self.path is not None
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        entries = [entry for entry in map(parsed, lines) if entry.get("conditions") == self.conditions]
        return {key_of(entry["what"]): entry["found"] for entry in entries}

    def __contains__(self, what: Mapping[str, Any]) -> bool:
        return key_of(what) in self.found

    def found_before(self, what: Mapping[str, Any]) -> Any:
        return self.found[key_of(what)]

    def every(self, kind: str) -> dict[str, tuple[Any, Any]]:
        """All measurements of one kind: of what, and what was found, by a key that other kinds have too."""
        entries = [(json.loads(key), found) for key, found in self.found.items()]
        return {key_of(what[kind]): (what[kind], found) for what, found in entries if what.keys() == {kind}}

    def measure(self, what: Mapping[str, Any], measure: Callable[[], Any]) -> Any:
        """What was found before, or else what is found now and kept. Both are as JSON gives them back."""
        key = key_of(what)
        if key not in self.found:
            entry = json.dumps({"what": what, "found": measure(), "conditions": self.conditions})
            self._append(entry)
            self.found[key] = json.loads(entry)["found"]
        return self.found[key]

    def _append(self, line: str) -> None:
        if self.path is not None:
            with self.path.open("ab+") as file:
                file.seek(max(0, file.tell() - 1))
                cut_off = file.read(1) not in (b"", b"\n")
                file.write(b"\n" * cut_off + f"{line}\n".encode())


def key_of(what: Mapping[str, Any]) -> str:
    return json.dumps(what, sort_keys=True)


def parsed(line: str) -> dict[str, Any]:
    """An entry; an empty one of a line that was cut off by a full disk or a killed process."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) and {"what", "found"} <= entry.keys() else {}
