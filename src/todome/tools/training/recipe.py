"""Recipe of a LoRA: everything it depends on, validated."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ...errors import invalid_value
from ...reductions import Downsample, Reduction, is_number
from ..pipelines import EMBEDDED

Precision = Literal["auto", "no", "fp16", "bf16"]


@dataclass(frozen=True)
class Recipe:
    """Everything a LoRA depends on. The same recipe gives the same LoRA.

    Args: Important
        data: A folder of pictures, with a caption for each in `name.txt` beside it or in one `metadata.jsonl`.
        model: "todome-flowers" (the embedded one), the folder of a pipeline, or an id on the Hugging Face hub.
        steps: Number of steps of the optimiser.
        batch: Number of pictures in a batch, on each process. A step sees batch x accumulate x processes of them.
        size: The side of a square with as many pixels as a training picture has; None is the model's own.
        reduction: `Downsample(...)`, `Merge(...)`, or None for dense. `stop=0.9` leaves the last tenth dense.
        rank: Rank of the matrices that are learnt: how much the LoRA can hold.
        learning_rate: How far each step goes.

    Args: To tinker with
        caption: Caption of pictures that have none.
        alpha: The LoRA counts alpha / rank; None is rank.
        accumulate: Number of batches of each process in one step.
        flip: Show each picture mirrored as well.
        precision: "no" is float32. "auto" is bf16 on a GPU that has it, fp16 on others, and "no" on a CPU.
        checkpointing: Compute activations again in the backward pass instead of keeping them: slower, in less memory.
        compile: Compile the UNet with torch.compile, a graph for each bucket.
        seed: Seed of the order of the pictures, the noise and the first weights.
    """

    data: Path
    model: str = EMBEDDED
    steps: int = 1000
    batch: int = 1
    size: int | None = None
    reduction: Reduction | None = field(default_factory=lambda: Downsample(phase="random"))
    rank: int = 16
    learning_rate: float = 1e-4
    caption: str | None = None
    alpha: float | None = None
    accumulate: int = 1
    flip: bool = False
    precision: Precision = "auto"
    checkpointing: bool = False
    compile: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", Path(self.data))
        object.__setattr__(self, "alpha", self.rank if self.alpha is None else self.alpha)
        for name, usual in {"steps": 1000, "batch": 1, "rank": 16, "accumulate": 1}.items():
            check_at_least(name, getattr(self, name), 1, usual)
        check_at_least("seed", self.seed, 0, 0)
        if self.size is not None:
            check_at_least("size", self.size, 1, 512)
        for name, usual in {"learning_rate": "1e-4", "alpha": "the rank"}.items():
            value = getattr(self, name)
            if not is_number(value) or not 0 < value < math.inf:
                raise invalid_value(name, value, "a number above 0", f"The usual one is {usual}")
        if self.precision not in get_args(Precision):
            raise invalid_value(
                "precision", self.precision, ", ".join(get_args(Precision)), '"auto" is the best there is'
            )


def check_at_least(field: str, value: Any, least: int, usual: int) -> None:
    """Refuses anything but a whole number of at least so much."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise invalid_value(field, value, f"a whole number of at least {least}", f"The usual one is {usual}")
