"""The benchmark scripts: on a machine without a GPU they run in small, and their results say where they were made."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_what_a_reduction_costs_the_host(tmp_path):
    out = tmp_path / "host.json"
    options = ["--layers", "2", "--rounds", "1", "--calls", "1", "--out", str(out)]
    command = [sys.executable, "benchmarks/host.py", *options]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, check=True)
    found = json.loads(out.read_text())
    assert {"cpu", "python", "versions", "date"} <= found["machine"].keys()
    assert found["command"] == "benchmarks/host.py --layers 2 --rounds 1 --calls 1"
    dense, *others = found["rows"]
    assert (dense["method"], dense["extra_us"]) == ("dense", 0)
    assert [row["method"] for row in others] == [
        "todome dithered",
        "todome fixed (ToDo)",
        "todome Merge 0.5",
        "tomesd 0.5",
    ]
