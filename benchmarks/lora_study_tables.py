"""The table of docs/training.md that is made from the results of lora_study.py.

python benchmarks/lora_study_tables.py benchmarks/results/lora-study-h200.json
"""

import json
import sys
from pathlib import Path
from typing import Any

NAMES = {"dense": "dense", "todome:2": "factor 2", "todome:4": "factor 4", "todo:4": "ToDo 4 (`fixed`)"}


def line(trained: str, rows: list[dict[str, Any]]) -> str:
    """How close a LoRA's reduced pictures are to its dense ones, and the FID of each way to sample."""
    found = {row["method"]: row for row in rows}
    sampled = [found[name]["closeness"] for name in NAMES if name != "dense"]
    close = [f"{one['psnr']:.1f} dB, {one['lpips']:.4f}" for one in sampled]
    fid = [f"{found[name]['fid']:.0f}" for name in NAMES]
    return f"| {NAMES[trained.partition(',')[0]]} | {' | '.join([*close, *fid])} |"


def main() -> None:
    runs = json.loads(Path(sys.argv[1]).read_text())
    sampled = [*(f"sampled with {name}" for name in list(NAMES.values())[1:]), *(f"FID {n}" for n in NAMES.values())]
    print(f"| trained | {' | '.join(sampled)} |", "|---" * (len(sampled) + 1) + "|", sep="\n")
    print(*(line(name, run["rows"]) for name, run in runs.items()), sep="\n")


if __name__ == "__main__":
    main()
