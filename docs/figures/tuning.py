"""Draws docs/figures/tuning.svg: plans, uniform factors and fewer steps, from the results of benchmarks/tuning.py.

python docs/figures/tuning.py [FILE, whose suffix says the format [RESULTS]]
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[2]
SERIES = {  # of the kinds of rows: label, colour, marker, line, place of the names
    "uniform": ("uniform factors", "#bf8700", "s", "none", {"xytext": (-6, -10), "ha": "right"}),
    "plan": ("plans of todome tune", "#0b6b57", "o", "-", {"xytext": (5, 5)}),
    "steps": ("fewer dense steps", "#57606a", "D", ":", {"xytext": (-6, -10), "ha": "right"}),
}


def draw(axes: plt.Axes, rows: list[dict[str, Any]], title: str) -> None:
    for kind, (label, colour, marker, line, place) in SERIES.items():
        found = sorted(
            (row["speedup"], row["psnr"], row["name"]) for row in rows if row["kind"] == kind and "psnr" in row
        )
        if not found:
            continue
        xs, ys, names = zip(*found, strict=True)
        axes.plot(xs, ys, linestyle=line, color=colour, marker=marker, markersize=6, label=label)
        for x, y, name in zip(xs, ys, names, strict=True):
            short = name.removesuffix(" steps")
            axes.annotate(short, (x, y), textcoords="offset points", fontsize=8, color=colour, **place)
    axes.set(title=title, xlabel="speed-up of a step over dense")
    axes.grid(color="#d0d7de", linewidth=0.6)
    axes.margins(x=0.14, y=0.1)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    given = [Path(word) for word in sys.argv[1:]]
    out = given[0] if given else Path(__file__).with_suffix(".svg")
    results = given[1] if len(given) > 1 else ROOT / "benchmarks/results/tuning-h200.json"
    rows = json.loads(results.read_text())["rows"]
    sizes = sorted({row["px"] for row in rows})
    mpl.rcParams.update({"svg.hashsalt": "todome", "font.size": 10, "axes.titlesize": 11})
    options: dict[str, Any] = {"figsize": (4.2 * len(sizes), 4.2), "sharey": True, "squeeze": False}
    figure, ((*axes,),) = plt.subplots(1, len(sizes), layout="constrained", **options)
    for panel, px in zip(axes, sizes, strict=True):
        draw(panel, [row for row in rows if row["px"] == px], f"{px} px")
    axes[0].set_ylabel("PSNR to the dense picture, dB (higher is closer)")
    axes[0].legend(frameon=False, loc="upper right")
    figure.savefig(out, dpi=110, metadata={"Date": None} if out.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
