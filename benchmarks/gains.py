"""The speed-ups that the extension for AUTOMATIC1111 and Forge shows before a picture is drawn: its gains.json.

python benchmarks/gains.py
"""

import json
from pathlib import Path
from typing import Any

from tables import MODELS, RESULTS, cases

from todome.tools.measuring.runs import write_json

SHOWN = Path(__file__).parents[1] / "integrations/webui/todome_webui/gains.json"


def gains(results: Path) -> dict[str, Any]:
    """The machine, and by size and model the factor and the speed-up of one call of the UNet with one picture."""
    speedups: dict[str, Any] = {}
    for case in sorted(cases(results, "cuda-graph"), key=lambda case: case.case.size):
        entry = {"factor": int(case.factor), "speedup": case.rows["todome"].speedup}
        speedups.setdefault(str(case.case.size[0]), {})[MODELS[case.case.model]] = entry
    return {"machine": json.loads(results.read_text())["about"]["gpu"], "speedups": speedups}


if __name__ == "__main__":
    write_json(SHOWN, gains(RESULTS / "speed-h200.json"))
