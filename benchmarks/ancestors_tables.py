"""The tables of docs/quality.md that are made from the results of ancestors.py: ToMe's and ToDo's, in their layouts.

python benchmarks/ancestors_tables.py benchmarks/results/ancestors-h200.json
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from todome.tools.measuring.runs import Closeness, Evaluation, read_plan, read_row
from todome.tools.measuring.tables import todo_table, tome_table


def run_of(found: dict[str, Any]) -> Evaluation:
    """A run from its summary: the means stand for the values of single pictures."""
    rows = [read_row({**row, "closeness": means(row["closeness"])}) for row in found["rows"]]
    return Evaluation(read_plan(found["plan"]), found["about"], rows, Path())


def means(closeness: dict[str, float]) -> dict[str, list[float]]:
    return {name: [closeness[name]] for name in Closeness.__dataclass_fields__ if name in closeness}


def main() -> None:
    runs = {name: run_of(found) for name, found in json.loads(Path(sys.argv[1]).read_text()).items()}
    todo = [run for name, run in runs.items() if name.startswith("todo")]
    all_sizes = replace(todo[0], rows=[row for run in todo for row in run.rows])
    print(tome_table(runs["tome"]), todo_table(all_sizes), sep="\n\n")


if __name__ == "__main__":
    main()
