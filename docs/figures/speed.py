"""Draws docs/figures/speed.svg: speed-up over dense by size, for todome and its peers, from benchmarks/speed.py.

python docs/figures/speed.py [FILE, whose suffix says the format]
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from tables import MODELS, RESULTS, Case, cases  # noqa: E402

SERIES = {  # the method without its factor: label, colour, marker
    "todome,2": ("todome, levels 1 + 2", "#0969da", "D"),
    "todome": ("todome", "#54aeff", "o"),
    "tome:0.5": ("ToMe, todome's Merge 0.5", "#bf8700", "s"),
    "tomesd:0.5": ("ToMe, tomesd 0.5", "#cf222e", "^"),
}


def draw(axes: plt.Axes, chosen: Sequence[Case], title: str) -> None:
    sides = [one.case.size[0] for one in chosen]
    for name, (label, colour, marker) in SERIES.items():
        gains = [one.rows[name].speedup or 0 for one in chosen]
        axes.plot(sides, gains, color=colour, marker=marker, label=label, linewidth=1.6, markersize=5)
    axes.axhline(1, color="#57606a", linewidth=0.8)
    axes.set(title=title, xlabel="side of the picture, px", xticks=sides)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(color="#d0d7de", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    found = cases(RESULTS / "speed-h200.json", "cuda-graph")
    mpl.rcParams.update({"svg.hashsalt": "todome", "font.size": 10, "axes.titlesize": 11})
    models = list(dict.fromkeys(one.case.model for one in found))
    figure, axes = plt.subplots(1, len(models), figsize=(10.5, 3.8), sharey=True, layout="constrained")
    for panel, model in zip(axes, models, strict=True):
        draw(panel, [one for one in found if one.case.model == model], MODELS[model])
    axes[0].set_ylabel("speed-up of a step over dense")
    axes[0].legend(frameon=False, loc="upper left", fontsize=9)
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".svg")
    figure.savefig(out, dpi=110, metadata={"Date": None} if out.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
