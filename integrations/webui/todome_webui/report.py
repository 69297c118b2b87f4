"""What a pass did, in words: for the log, for the accordion and for the line under the picture."""

import html
import math
from collections.abc import Sequence

from todome.levers.checks import format_grid
from todome.levers.downsample import AUTO_KEYS
from todome.levers.layers import DownsampleLayers
from todome.levers.lever import Level, TokenLever


class Report:
    """The steps of one pass, and what was reduced in them."""

    def __init__(self, title: str, lever: TokenLever) -> None:
        self.title, self.lever = title, lever
        self.steps: dict[int, bool] = {}  # those that were made, and whether the lever was on

    def note_step(self, step: int, steps: int) -> None:
        self.steps[step] = self.lever.is_on(step, steps)

    def reduced(self, levels: Sequence[Level]) -> bool:
        return any(left < math.prod(grid) for level in levels for grid, left in level.grids.items())

    def lines(self, levels: Sequence[Level]) -> list[str]:
        """One for each level, or one that says why nothing was reduced. None where no step was made."""
        if not self.steps:
            return []
        if not self.reduced(levels):
            return [f"{self.title}: nothing was reduced. {self.reason(levels)}"]
        share = f"in {sum(self.steps.values())} of {len(self.steps)} steps"
        return [f"{self.title}: {self.lever.describe(level)}, {share}" for level in levels]

    def reason(self, levels: Sequence[Level]) -> str:
        planned = self.lever.layers.values() if isinstance(self.lever, DownsampleLayers) else ()
        if planned and (levels or not any(layer.is_reduced for layer in planned)):
            return "The plan leaves every layer dense: todome tune found nothing to gain."
        if not any(self.steps.values()):
            return f"It is disabled after {self.lever.stop:.0%} of the steps, which is before the first one ends."
        if not levels:
            return "HyperTile, token merging or a reference of ControlNet changes the tokens: use one of them."
        finest = max(grid for level in levels for grid in level.grids)
        return (
            f"The automatic factor leaves up to {AUTO_KEYS} tokens as they are, and this picture has "
            f"{format_grid(finest)} = {math.prod(finest)} at the finest level. Choose a factor of 2."
        )


class Latest:
    """The lines of the generation that was made last. Those of several pictures alike stand once."""

    def __init__(self) -> None:
        self.lines: dict[str, None] = {}

    def clear(self) -> None:
        self.lines.clear()

    def add(self, line: str) -> None:
        self.lines[line] = None

    def page(self) -> str:
        lines = "<br>".join(map(html.escape, self.lines))
        return (
            f"<p>The last picture: {lines}</p>"
            if lines
            else "<p>The last picture was drawn as it is, without todome.</p>"
        )


latest = Latest()
