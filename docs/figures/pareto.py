"""Draws docs/figures/pareto.svg: speed-up against closeness to dense, from the results of benchmarks/fidelity.py.

python docs/figures/pareto.py [FILE, whose suffix says the format]
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from tables import Row, group_of, is_dense, name_of, speedup  # noqa: E402

LEFT, RIGHT, ABOVE = {"xytext": (-7, -3), "ha": "right"}, {"xytext": (7, -3)}, {"xytext": (4, 6)}  # of the names
SERIES = {  # what the name of a row begins with: label, colour, marker, place of the names
    "dither": ("todome, dithered", "#0969da", "o", ABOVE),
    "fixed": ("ToDo, fixed", "#bf8700", "s", LEFT),
    "tomesd": ("ToMe, tomesd", "#cf222e", "^", RIGHT),
    "dense,": ("fewer dense steps", "#57606a", "D", RIGHT),
}
PANELS = {(256, "dpm++", 25): "256 px: 4,096 tokens", (512, "dpm++", 25): "512 px: 16,384 tokens"}


def draw(axes: plt.Axes, rows: list[Row], all_rows: list[Row], title: str) -> None:
    for head, (label, colour, marker, place) in SERIES.items():
        points = [(speedup(row, all_rows), row["psnr"], name_of(row)) for row in rows if name_of(row).startswith(head)]
        if not points:
            continue
        xs, ys, _ = zip(*points, strict=True)
        axes.scatter(xs, ys, 44, color=colour, marker=marker, label=label, zorder=3)
        for x, y, name in points:
            free = {**LEFT, "xytext": (-6, 1)} if "dither" in name and "stop" in name else place
            axes.annotate(short(name), (x, y), textcoords="offset points", fontsize=8, color=colour, **free)
    axes.set(title=title, xlabel="speed-up over dense")
    axes.grid(color="#d0d7de", linewidth=0.6)
    axes.margins(x=0.14, y=0.1)
    axes.spines[["top", "right"]].set_visible(False)


def short(name: str) -> str:
    """What a point is called: its factor or ratio, or its number of steps."""
    name = name.removesuffix(" (ToDo)").replace("stop ", "until ")
    return name.split(", ")[1].split(" of")[0] + " steps" if name.startswith("dense") else name.split(" ", 1)[1]


def main() -> None:
    rows = json.loads((ROOT / "benchmarks/results/fidelity-h200.json").read_text())["rows"]
    mpl.rcParams.update({"svg.hashsalt": "todome", "font.size": 10, "axes.titlesize": 11})
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.6), sharey=True, layout="constrained")
    for panel, (group, title) in zip(axes, PANELS.items(), strict=True):
        draw(panel, [row for row in rows if group_of(row) == group and not is_dense(row)], rows, title)
    axes[0].set_ylabel("PSNR to the dense picture, dB (higher is closer)")
    handles, labels = axes[0].get_legend_handles_labels()
    axes[1].legend(handles, labels, frameon=False, loc="lower right")
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".svg")
    figure.savefig(out, dpi=110, metadata={"Date": None} if out.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
