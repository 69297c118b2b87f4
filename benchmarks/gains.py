"""The speed-ups that the extension for AUTOMATIC1111 and Forge shows before a picture is drawn.

python benchmarks/gains.py benchmarks/results/speed-h200.json > integrations/webui/todome_webui/gains.json
"""

import json
import sys
from pathlib import Path
from typing import Any

from speed_tables import NAMES, cases, column_of, factor_of

from todome.tools.measuring.speed import read_bench


def gains(path: Path) -> dict[str, Any]:
    """The machine, and by size and model the factor and the speed-up of one call of the UNet with one picture."""
    found, speedups = read_bench(path), {}
    for case in cases(found, "cuda-graph", 1):
        row = next(row for row in found.of(case) if column_of(row) == "todome")
        entry = {"factor": int(factor_of(found.of(case))), "speedup": row.speedup}
        speedups.setdefault(str(case.size[0]), {})[NAMES[case.model]] = entry
    return {"machine": json.loads(path.read_text())["about"]["gpu"], "speedups": speedups}


if __name__ == "__main__":
    print(json.dumps(gains(Path(sys.argv[1])), indent=1))
