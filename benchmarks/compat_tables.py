"""The tables of docs/versions.md that are made from the results of compat.py.

python benchmarks/compat_tables.py benchmarks/results/compat.json
"""

import json
import sys
from pathlib import Path
from typing import Any


def versions_table(rows: list[dict[str, Any]]) -> str:
    """What passed, was skipped and failed with each set of versions."""
    lines = ["| torch | Python | diffusers | as in | passed | skipped | failed |", "|---" * 7 + "|"]
    for row in rows:
        skipped = sum(row["skipped"].values())
        versions = f"| {row['torch']} | {row['python']} | {row['diffusers']} | {row['who']} "
        lines.append(f"{versions}| {row['passed']} | {skipped} | {len(row['failed'])} |")
    return "\n".join(lines)


def reasons_table(rows: list[dict[str, Any]]) -> str:
    """Why tests were skipped, and with which torch."""
    reasons = {reason for row in rows for reason in row["skipped"]}
    lines = ["| skipped because | with torch |", "|---|---|"]
    for reason in sorted(reasons):
        where = sorted({row["torch"] for row in rows if reason in row["skipped"]}, key=numbers)
        everywhere = len(where) == len({row["torch"] for row in rows})
        lines.append(f"| {reason} | {'all' if everywhere else ', '.join(where)} |")
    return "\n".join(lines)


def numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def main() -> None:
    rows = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["rows"]
    print(versions_table(rows), reasons_table(rows), sep="\n\n")


if __name__ == "__main__":
    main()
