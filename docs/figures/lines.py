"""Draws docs/figures/lines.svg: what reuse over steps extrapolates, over the noise level, and the lines it follows.

python docs/figures/lines.py             draws what is in lines.json
python docs/figures/lines.py --measure   measures it first, on the embedded model: a minute on a CPU
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from canvas import figure, line, save, title, words
from torch import Tensor

from todome import Reuse
from todome.steps.choosing import by_hand
from todome.steps.costs import unet_shares
from todome.steps.law import FULL
from todome.steps.lines import Line
from todome.steps.noise import Noise, noise_of

DATA = Path(__file__).with_suffix(".json")
PROMPT, STEPS, GUIDANCE, SIZE, SHOWN = "a red tulip, close-up", 25, 5.0, 256, 3
COLOURS = ("var(--kept)", "var(--query)", "var(--other)")


def watch_run(pipe: Any) -> tuple[Noise, dict[str, Tensor]]:
    """A dense run: what guidance, the deep features and the predicted picture were in each step."""
    found: dict[str, list[Tensor]] = {"guidance": [], "deep features": [], "predicted picture": []}

    def note_deep(_: Any, args: Any, deep: Tensor) -> None:
        found["deep features"].append(deep[1].clone())

    def note(_: Any, args: Any, kwargs: Any, output: Any) -> None:
        noise, step = noise_of(pipe.scheduler), len(found["guidance"])
        assert noise is not None
        of_latents, of_output = noise.clean(step)
        unconditional, conditional = output[0]
        found["guidance"].append((conditional - unconditional) * noise.noise_share(step))
        found["predicted picture"].append(conditional * of_output + args[0][1] * of_latents)

    hooks = [
        pipe.unet.up_blocks[-2].register_forward_hook(note_deep),  # all that goes up into the finest stage
        pipe.unet.register_forward_hook(note, with_kwargs=True),
    ]
    options = {"num_inference_steps": STEPS, "guidance_scale": GUIDANCE, "height": SIZE, "width": SIZE}
    try:
        pipe(PROMPT, generator=torch.Generator().manual_seed(0), output_type="latent", **options)
    finally:
        for hook in hooks:
            hook.remove()
    noise = noise_of(pipe.scheduler)
    assert noise is not None
    return noise, {name: torch.stack(values).flatten(1).float() for name, values in found.items()}


def predictions(word: str, sigmas: Sequence[float], values: Tensor) -> Iterator[tuple[Line, int]]:
    """The line that each partial step is read from, and its place."""
    known: Line | None = None
    for step, letter in enumerate(word):
        if letter != FULL and known is not None:
            yield known, step
        elif letter == FULL:
            known = Line(sigmas[step], values[step]) if known is None else known.moved(sigmas[step], values[step])


def missed(word: str, sigmas: Sequence[float], values: Tensor) -> dict[str, float]:
    """How far partial steps are from the truth, as a share of it: along the lines, and by repeating the last value."""
    partial = list(predictions(word, sigmas, values))
    truth = torch.stack([values[step] for _, step in partial])
    guesses = {
        "line": torch.stack([known.at(sigmas[step]) for known, step in partial]),
        "repeated": torch.stack([known.value for known, _ in partial]),
    }
    return {name: round(float((guess - truth).norm() / truth.norm()), 4) for name, guess in guesses.items()}


def measure() -> dict[str, Any]:
    from todome.tools.pipelines import EMBEDDED, open_pipeline, weights_of

    pipe = open_pipeline(device="cpu")
    noise, found = watch_run(pipe)
    word = by_hand(Reuse(every=3), noise.sigmas, 0, unet_shares("attention", (64, 64), 1), guided=True).word
    torch.manual_seed(0)
    quantities = {}
    for name, values in found.items():
        some = values[:, torch.randint(values.shape[1], (SHOWN,))] / values.std()
        curves = [[round(value, 4) for value in curve] for curve in some.T.tolist()]
        quantities[name] = {"curves": curves, "missed": missed(word, noise.places, values)}
    sigmas = [round(place, 4) for place in noise.places]
    settings = {"prompt": PROMPT, "steps": STEPS, "guidance": GUIDANCE, "size": SIZE, "word": word, "sigmas": sigmas}
    return weights_of(EMBEDDED) | settings | {"quantities": quantities}


LEFT, TOP, WIDE, HIGH, GAP = 24, 44, 260, 210, 40
FIRST = 6  # step that is shown: the noise levels before are far apart


def dot(x: float, y: float, colour: str, is_full: bool) -> str:
    fill = colour if is_full else "var(--paper)"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{fill}" stroke="{colour}"/>'


def panel(left: float, name: str, curves: Sequence[Sequence[float]], word: str, sigmas: Sequence[float]) -> list[str]:
    shown = [value for curve in curves for value in curve[FIRST:]]
    low, high = min(shown), max(shown)

    def place(sigma: float, value: float) -> tuple[float, float]:
        along, up = 1 - sigma / sigmas[FIRST], (value - low) / (high - low)
        return left + WIDE * along, TOP + HIGH * (0.95 - 0.9 * up)

    shapes = [title(left + WIDE / 2, 24, name)]
    bottom = TOP + HIGH
    for sigma in range(int(sigmas[FIRST]) + 1):
        x = place(sigma, low)[0]
        shapes += [line([(x, TOP), (x, bottom)], "var(--faint)"), words(x, bottom + 20, str(sigma))]
    shapes.append(words(left + WIDE / 2, bottom + 40, "noise over signal"))
    for colour, curve in zip(COLOURS, curves, strict=True):
        values = torch.tensor(curve)[:, None]
        for known, step in predictions(word, sigmas, values):
            is_last = word[step + 1] == FULL
            if is_last and known.before is not None:
                ends = [(known.before[0], float(known.before[1])), (sigmas[step], float(known.at(sigmas[step])))]
                shapes.append(line([place(*end) for end in ends], colour, 1.5))
        for step in range(FIRST, len(word)):
            shapes.append(dot(*place(sigmas[step], curve[step]), colour, word[step] == FULL))
    return shapes


def drawing_of(found: Mapping[str, Any]) -> str:
    shapes: list[str] = []
    for place, (name, quantity) in enumerate(found["quantities"].items()):
        shapes += panel(LEFT + place * (WIDE + GAP), name, quantity["curves"], found["word"], found["sigmas"])
    wide, under = LEFT * 2 + 3 * WIDE + 2 * GAP, TOP + HIGH + 68
    for x, is_full, text in ((150, True, "computed in a full step"), (340, False, "what a partial step leaves out")):
        shapes += [dot(x, under - 4, "var(--kept)", is_full), words(x + 10, under, text, "start")]
    shapes += [line([(574, under - 4), (594, under - 4)], "var(--kept)", 1.5)]
    shapes += [words(602, under, "line through the last two full steps", "start")]
    alt = "Over the noise level, guidance, deep features and the predicted picture run along nearly straight lines"
    return figure(wide, under + 16, alt, shapes)


if __name__ == "__main__":
    if "--measure" in sys.argv:
        DATA.write_text(json.dumps(measure(), indent=1) + "\n")
    save(__file__, drawing_of(json.loads(DATA.read_text())))
