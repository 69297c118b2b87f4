"""The committed results, and the words in which pages quote them."""

import json
from collections.abc import Sequence
from typing import Any

from pages import ROOT


def results(name: str) -> Any:
    return json.loads((ROOT / "benchmarks/results" / name).read_text())


def sentences(page: str) -> str:
    """A page as one line: sentences may be broken anywhere."""
    return " ".join((ROOT / page).read_text().split())


def from_to(values: Sequence[float]) -> str:
    return f"{min(values):.0f} to {max(values):.0f}"


def closeness_of_papers_sizes() -> dict[str, list[float]]:
    """PSNR to dense at the three sizes of ToDo's table, by tool."""
    runs = results("ancestors-h200.json")
    rows = [row for name, run in runs.items() if name.startswith("todo-") for row in run["rows"]]
    tools = ("todome", "todo", "tome")
    return {tool: [r["closeness"]["psnr"] for r in rows if r["method"].startswith(f"{tool}:")] for tool in tools}
