"""Draws docs/figures/layers.svg: how much each layer changes when it alone is reduced, from benchmarks/layers.py.

python docs/figures/layers.py [FILE, whose suffix says the format]
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[2]
COLOURS = {2: "#0969da", 4: "#bf8700"}  # of the factors
PANELS = {
    ("todome-flowers", 256, 1): "the embedded model, 256 px, level 1",
    ("todome-flowers", 512, 1): "the embedded model, 512 px, level 1",
    ("second", 256, 1): "the second model, 256 px, level 1",
    ("second", 256, 2): "the second model, 256 px, level 2",
}


def draw(axes: plt.Axes, rows: list[dict[str, Any]], title: str) -> None:
    names = list(dict.fromkeys(row["layer"] for row in rows))
    for factor, colour in COLOURS.items():
        db = {row["layer"]: row["db"] for row in rows if row["factor"] == factor}
        heights = [names.index(name) + (0.2 if factor == 4 else -0.2) for name in db]
        axes.barh(heights, list(db.values()), height=0.36, color=colour, label=f"factor {factor}")
    axes.set(title=title, yticks=range(len(names)), xlim=(0, 55))
    axes.set_yticklabels(names, fontsize=8)
    axes.invert_yaxis()  # in the order in which the model calls them
    axes.grid(axis="x", color="#d0d7de", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    rows = json.loads((ROOT / "benchmarks/results/layers.json").read_text())["rows"]
    mpl.rcParams.update({"svg.hashsalt": "todome", "font.size": 10, "axes.titlesize": 11})
    figure, axes = plt.subplots(2, 2, figsize=(10.5, 8), layout="constrained", height_ratios=(5, 10))
    for panel, (case, title) in zip(axes.flat, PANELS.items(), strict=True):
        draw(panel, [row for row in rows if (row["model"], row["px"], row["level"]) == case], title)
    for panel in axes[1]:
        panel.set_xlabel("dB of the latents, this layer alone reduced (higher is closer)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), frameon=False, loc="outside upper right", ncols=2)
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".svg")
    figure.savefig(out, dpi=110, metadata={"Date": None} if out.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
