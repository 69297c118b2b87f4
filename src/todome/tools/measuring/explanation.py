"""`todome.explain`: what attention over the keys of each level costs here, what can be gained, and whether it pays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import invalid_value
from ...levers.downsample import AUTO_KEYS, Downsample
from ...tokens.grid import smallest_factor
from ..machine import chip
from ..pipelines import Size, format_size
from ..suspending import suspended
from ..timing import Timing, captured, measuring
from .attention_costs import LevelCost, reduced_levels, step_times
from .methods import is_windowed
from .subjects import denoiser_call

PAYS, PAYS_LITTLE = 1.10, 1.03  # times as fast
WAITS = 0.15  # of the time that a GPU idles, from which on it is worth a word
LEAST = Downsample(2)  # that is measured where the default leaves a size as it is
NOISY = 0.2  # from which on the numbers are not to be trusted


@dataclass(frozen=True)
class Explanation:
    """Gain of a reduction on a model at a size, on this machine. `print` it, or read its fields."""

    model: str
    size: Size
    device: str
    reduction: Downsample
    levels: Sequence[LevelCost]
    ms: float  # of a dense step, the device's own time
    gain: float  # of the reduction, in the device's own time
    bound: float  # what no reduction of keys at these levels can beat
    eager_ms: float  # of a dense step as a plain pipeline sees it
    eager_gain: float
    noise: float = 0.0  # how much the times of a dense step vary
    by_default: bool = True  # whether the default settings do this

    @property
    def share(self) -> float:
        """Of a step's time, that attention over all keys takes."""
        return sum(level.share for level in self.levels)

    @property
    def waiting(self) -> float:
        """The share of an eager step in which a GPU waits for its host."""
        return max(0.0, 1 - self.ms / self.eager_ms)

    @property
    def pays_from(self) -> Size | None:
        """The smallest size of this shape at which it is expected to pay, a guess from what was measured here."""
        width, height = self.size
        for quarters in range(5, 33):
            if self.expected_gain(quarters / 4) >= PAYS:
                return rounded_up(width * quarters / 4), rounded_up(height * quarters / 4)
        return None

    def expected_gain(self, times: float) -> float:
        """On a picture so many times as wide and high: attention grows with the square of the tokens, the rest evenly.

        Level 1 alone is counted, with the factor that "auto" would choose, or 2.
        """
        first = self.levels[0]
        attention = first.share * times**4
        rest = (1 - first.share) * times**2
        grid = int(first.grid[0] * times), int(first.grid[1] * times)
        factor = max(2, smallest_factor(grid, AUTO_KEYS))
        return (attention + rest) / (attention / factor**2 + rest)

    @property
    def verdict(self) -> str:
        """In plain words."""
        attention = f"attention over keys is {self.share:.0%} of a step here."
        said = [f"Not worth it here, {self.gain:.2f}x: {attention}"]
        if self.gain >= PAYS:
            said = [f"Pays: a step is {self.gain:.2f}x as fast; {attention}"]
        elif self.gain >= PAYS_LITTLE:
            said = [f"Pays little, {self.gain:.2f}x: {attention}"]
        if not self.by_default:
            said += ['The default, factor="auto", leaves this size as it is; this is what factor=2 would do.']
        if self.gain < PAYS and self.pays_from is None:
            said += ["From which size on it pays cannot be told from so little: ask again with a larger one."]
        elif self.gain < PAYS and self.pays_from:
            said += [f"Expected to pay from about {format_size(self.pays_from)} pixels."]
        if self.waiting >= WAITS:
            said += [f"In an eager pipeline the GPU waits for its host {self.waiting:.0%} of the time, which leaves"]
            said += [f"{self.eager_gain:.2f}x: use torch.compile, CUDA graphs or a larger batch to see the rest."]
        if self.noise >= NOISY:
            said += [f"Something else is using this machine: times vary by {self.noise:.0%},"]
            said += ["so trust these numbers little."]
        return " ".join(said)

    def __str__(self) -> str:
        head = f"{self.model}, {format_size(self.size)} pixels, one picture with guidance, {self.device}"
        lines = [f"  {line_of(level)}" for level in self.levels]
        sums = f"a step with full attention (dense) takes {self.ms:.1f} ms; reduced {self.gain:.2f}x as fast; "
        sums += f"at most {self.bound:.2f}x"
        return "\n".join([head, str(self.reduction), *lines, sums, self.verdict])


def rounded_up(side: float) -> int:
    return 64 * math.ceil(side / 64)


def line_of(level: LevelCost) -> str:
    height, width = level.grid
    keys = f"{height}x{width} = {level.keys} keys"
    left = f" -> {level.kept}" if level.kept < level.keys else ", dense"
    layers = f"{level.layers} layer{'s' * (level.layers != 1)}"
    return f"level {level.level}, {layers}: {keys}{left}; attention over them is {level.share:.1%} of a step"


def explain(
    target: Any,
    height: int,
    width: int,
    reduction: Downsample | None = None,
    *,
    name: str | None = None,
    timing: Timing = Timing(),  # noqa: B008
) -> Explanation:
    """Measures, in a few seconds, what attention over the keys of each level costs and what a reduction gains here.

    Args:
        target: A pipeline of diffusers or a UNet.
        height: Of the picture, in pixels.
        width: Of the picture, in pixels.
        reduction: `Downsample("auto")` unless given. Where that would leave this size dense, `Downsample(2)` is
            measured, and the verdict says so.
        name: What to call the model; its class unless given.
        timing: How long is measured, a `todome.tools.timing.Timing`.
    """
    check_downsample(reduction)
    with suspended(target), measuring():
        call = denoiser_call(target, (width, height))
        levels = reduced_levels(call, reduction or Downsample())
        by_default = reduction is not None or any(level.kept < level.keys for level in levels)
        chosen = (reduction or Downsample()) if by_default else LEAST
        levels = levels if by_default else reduced_levels(call, chosen)
        emptied = [without_keys(levels, level) for level in levels]
        reductions = list(dict.fromkeys([chosen, *emptied]))
        eager = step_times(call, reductions, lambda call: call, timing)
        own = step_times(call, reductions, captured, timing) if call.device.type == "cuda" else eager
    shares = [max(0.0, 1 - 1 / own.speedups[one]) for one in emptied]
    reduced = sum(share for share, level in zip(shares, levels, strict=True) if level.kept < level.keys)
    return Explanation(
        model=name or type(target).__name__,
        size=(width, height),
        device=chip(call.device),
        reduction=chosen,
        levels=[replace(level, share=round(share, 4)) for level, share in zip(levels, shares, strict=True)],
        ms=round(own.ms, 3),
        gain=round(own.speedups[chosen], 3),
        bound=round(1 / (1 - reduced), 3),
        eager_ms=round(eager.ms, 3),
        eager_gain=round(eager.speedups[chosen], 3),
        noise=round(own.noise, 3),
        by_default=by_default,
    )


def without_keys(levels: Sequence[LevelCost], level: LevelCost) -> Downsample:
    """One key in the largest square that fits a level: what no reduction of its keys can beat."""
    return Downsample([min(one.grid) if one is level else 1 for one in levels], phase="fixed")


def check_downsample(reduction: Any) -> None:
    if not (reduction is None or isinstance(reduction, Downsample)) or is_windowed(reduction):
        allowed = "todome.Downsample(...) without start and stop"
        raise invalid_value("reduction", reduction, allowed, "Time others with todome.bench", TypeError)
