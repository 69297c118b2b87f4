"""Draws docs/figures/why.svg: how wrong attention is, step by step and averaged over the steps, by phase.

python docs/figures/why.py             draws what is in why.json
python docs/figures/why.py --measure   measures it first, on the embedded model: minutes on a CPU
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from canvas import figure, line, save, title, words
from torch import Tensor, nn

from todome import Downsample
from todome.hosts import find_layers
from todome.tokens.grid import Phase, downsampling_table, kept_rows

DATA = Path(__file__).with_suffix(".json")
FACTOR, STEPS = 2, 24
PROMPTS = ("a photo of a daisy", "a red tulip, close-up", "a field of sunflowers", "pink roses")
PHASES: dict[Phase, str] = {"fixed": "var(--query)", "random": "var(--other)", "dither": "var(--kept)"}


class Watch:
    """Asks one self-attention of a dense run what it would have given with fewer keys."""

    def __init__(self, index: int) -> None:
        self.seed, self.step = Downsample().seed_of(index), 0
        self.total = torch.zeros(())  # of what it gave, over the steps; and of what each phase would have missed
        self.missed: dict[Phase, Tensor] = dict.fromkeys(PHASES, self.total)
        self.once: dict[Phase, list[float]] = {phase: [] for phase in PHASES}
        self.averaged: dict[Phase, list[float]] = {phase: [] for phase in PHASES}

    def __call__(self, attention: Any, args: tuple[Tensor], kwargs: Any, dense: Tensor) -> None:
        (tokens,) = args  # (batch, tokens, channels)
        side = math.isqrt(tokens.shape[1])
        self.total = self.total + dense
        for phase in PHASES:
            table = downsampling_table((side, side), FACTOR, phase, self.seed)
            rows = kept_rows(table, Downsample(FACTOR, phase).phase_index(self.step))
            error = attention.forward(tokens, encoder_hidden_states=tokens[:, rows]) - dense
            self.missed[phase] = self.missed[phase] + error
            self.once[phase].append(float(error.norm() / dense.norm()))
            self.averaged[phase].append(float(self.missed[phase].norm() / self.total.norm()))
        self.step += 1


def watch_run(pipe: Any, prompt: str, seed: int, **options: Any) -> list[Watch]:
    """A dense run, and what the layers of level 1 would have missed."""
    layers = [(i, layer) for i, layer in enumerate(find_layers(pipe.unet)) if layer.level == 1]
    watches = [Watch(i) for i, _ in layers]
    modules: list[nn.Module] = [layer.attention for _, layer in layers]
    hooks = [m.register_forward_hook(w, with_kwargs=True) for m, w in zip(modules, watches, strict=True)]
    try:
        pipe(prompt, generator=torch.Generator().manual_seed(seed), guidance_scale=3.0, output_type="latent", **options)
    finally:
        for hook in hooks:
            hook.remove()
    return watches


def means(runs: Sequence[Watch], measure: str) -> dict[str, list[float]]:
    """Over layers and pictures, step by step."""
    errors = {phase: torch.tensor([getattr(run, measure)[phase] for run in runs]) for phase in PHASES}
    return {phase: [round(error, 5) for error in found.mean(0).tolist()] for phase, found in errors.items()}


def measure() -> dict[str, Any]:
    from todome.tools.pipelines import EMBEDDED, open_pipeline, weights_of

    pipe = open_pipeline(device="cpu")
    runs = [w for i, prompt in enumerate(PROMPTS) for w in watch_run(pipe, prompt, i, num_inference_steps=STEPS)]
    found = {"factor": FACTOR, "prompts": PROMPTS, "once": means(runs, "once"), "averaged": means(runs, "averaged")}
    return weights_of(EMBEDDED) | found


LEFT, TOP, WIDE, HIGH, GAP = 64, 44, 300, 200, 90
TICKS = (0.001, 0.003, 0.01, 0.03, 0.1)


def panel(left: float, name: str, curves: Mapping[str, Sequence[float]], labelled: bool) -> list[str]:
    def place(step: float, error: float) -> tuple[float, float]:
        rise = math.log(error / TICKS[0]) / math.log(TICKS[-1] / TICKS[0])
        return left + WIDE * (step - 1) / (STEPS - 1), TOP + HIGH * (1 - rise)

    shapes = [title(left + WIDE / 2, 24, name)]
    for error in TICKS:
        x, y = place(1, error)
        shapes += [line([(x, y), (x + WIDE, y)], "var(--faint)"), words(x - 8, y + 4, f"{error:.1%}", "end")]
    for step in (1, *range(4, STEPS + 1, 4)):
        shapes.append(words(place(step, TICKS[0])[0], TOP + HIGH + 20, str(step)))
    shapes.append(words(left + WIDE / 2, TOP + HIGH + 40, "step"))
    for phase, colour in PHASES.items():
        points = [place(step, error) for step, error in enumerate(curves[phase], start=1)]
        shapes.append(line(points, colour, 2, 'stroke-linejoin="round"'))
        if labelled:
            x, y = points[-1]
            shapes.append(words(x + 8, y + 4, phase, "start", f'style="fill: {colour}; font-weight: 600"'))
    return shapes


def drawing_of(found: Mapping[str, Any]) -> str:
    shapes = panel(LEFT, "error of a single step", found["once"], labelled=False)
    shapes += panel(LEFT + WIDE + GAP, "error of the average so far", found["averaged"], labelled=True)
    alt = "A single step is as wrong with every phase; averaged over the steps, dithering is far closer than fixed"
    return figure(LEFT + 2 * WIDE + GAP + 76, TOP + HIGH + 56, alt, shapes)


if __name__ == "__main__":
    if "--measure" in sys.argv:
        DATA.write_text(json.dumps(measure(), indent=1) + "\n")
    save(__file__, drawing_of(json.loads(DATA.read_text())))
