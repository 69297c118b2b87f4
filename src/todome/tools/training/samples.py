"""Pictures that show on the way what a LoRA has learnt."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...reductions import Reduction
from ..generate import make_picture
from ..pictures import write_png
from ..settings import recommended_settings
from .latents import encoders_on
from .recipe import Recipe, check_at_least


@dataclass(frozen=True)
class Samples:
    """Pictures to draw on the way, and when.

    Args:
        prompts: One picture each, always from the same noise.
        every: Number of steps from one time to the next; they are drawn at the end too.
        reduction: Reduction to draw them with; None is dense.
        steps: Number of denoising steps; None is the model's own.
    """

    prompts: Sequence[str] = ()
    every: int = 250
    reduction: Reduction | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        check_at_least("sample_every", self.every, 1, 250)


def draw_samples(pipe: Any, recipe: Recipe, samples: Samples, step: int, folder: Path, state: Any) -> None:
    """Draws samples with a pipeline whose UNet is dense. Each process draws its share."""
    folder.mkdir(parents=True, exist_ok=True)
    usual, side = recommended_settings(recipe.model), recipe.size or 0
    usual = replace(usual, size=(side, side), reduction=samples.reduction, steps=samples.steps or usual.steps)
    pipe.set_progress_bar_config(disable=True)
    with encoders_on(pipe, state.device):
        for i in range(state.process_index, len(samples.prompts), state.num_processes):
            made = make_picture(replace(usual, prompt=samples.prompts[i], seed=recipe.seed + i), pipe)
            texts = {"prompt": samples.prompts[i], "training step": str(step)}
            write_png(made.picture, folder / f"{step:06d}-{i + 1}.png", texts, force=True)
