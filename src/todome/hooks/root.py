"""What happens at the door of a model, outside of every compiled graph: the clock is told, and so is the user."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from ..hosts.unet import Reducer
from ..reductions import AUTO_KEYS, Downsample
from ..steps.clock import Call, Clock
from .checkpointing import chosen_once
from .modules import Hook, hang_after, hang_before


class Door(Hook):
    """Hangs on the model that is called at every step."""

    def __init__(self, root: nn.Module, reducers: list[Reducer], clock: Clock) -> None:
        super().__init__(clock)
        self.reducers = reducers
        hang_before(root, self.before)  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(clock.reduction, Downsample) and clock.reduction.factor == "auto":
            hang_after(root, self.after)  # pyright: ignore[reportAttributeAccessIssue]

    @torch.compiler.disable
    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        latents = latents_among((*args, *kwargs.values()))
        if latents is not None:
            self.clock.show(chosen_once(latents, self, module, lambda: self.next_call(latents.device)))
            self.clock.lend(latents.device)

    def next_call(self, device: torch.device) -> Call:
        self.clock.called(device)
        return self.clock.call

    @torch.compiler.disable
    def after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Says once where "auto" found nothing to do; a silent no-op is what users of the peers suffer from."""
        grids = {grid: left for reducer in self.reducers for grid, left in reducer.tables.seen.items()}
        if grids and all(left == grid[0] * grid[1] for grid, left in grids.items()) and not self.clock.told:
            self.clock.told = True
            height, width = max(grids)
            warnings.warn(
                f'factor="auto" leaves this model dense: its finest grid has {height}x{width} tokens, and "auto" '
                f"reduces grids of more than {AUTO_KEYS}. Use todome.Downsample(factor=2) to reduce it all the same.",
                stacklevel=2,
            )


def latents_among(arguments: tuple[Any, ...]) -> Tensor | None:
    """What a model denoises: of its arguments the one with rows and columns."""
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    return next((t for t in tensors if t.ndim > 3), tensors[0] if tensors else None)
