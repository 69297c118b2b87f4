"""Following noise levels: where in a run a host is that tells nothing but the noise level it calls its model with.

ComfyUI and Forge call patches with the options of the call:

    original_shape      of the latents, a list made anew for every call of the model
    sigmas              the noise level of this call, on the device
    sample_sigmas       the schedule of this run, one more than there are steps. Older hosts do not have it.

The noise level is read from the device once in every call of the model: these hosts tell the step by nothing else.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..levers.lever import Parts, TokenLever

ROUNDING = 1.0001  # sigmas that went through a sampler's logarithms come back a little different


class SigmaClock:
    """Step, phase and part of a host's run, from the noise level of each call.

    With a schedule, the step is the place of the noise level in it. Samplers of second order that call the model
    between two of its levels stay in their step; Heun's second call is at the next level, and so in the next step.
    Without one, a run begins where the noise rises and every fall is a step: calls in between count as steps of their
    own, which the parts, given as noise levels, do not mind.

    Args:
        lever: Whose phases are told.
        parts: Of a run.
        cuts: The noise levels at which they end, for hosts that do not tell their schedule.
    """

    def __init__(self, lever: TokenLever, parts: Parts, cuts: Sequence[float] | None) -> None:
        self.lever, self.parts, self.cuts = lever, parts, cuts
        self.call: list[int] | None = None
        self.schedule: Tensor | None = None
        self.levels: list[float] = []  # the schedule, read
        self.sigma = -1.0  # of the call before
        self.run = self.step = self.phase_index = 0
        self.part = parts.part_after(0)

    def follow(self, options: dict[str, Any]) -> None:
        """Moves to the call that has these options."""
        if options["original_shape"] is self.call:
            return
        self.call = options["original_shape"]
        sigma = float(options["sigmas"].max())
        if options.get("sample_sigmas") is None:
            self._count(sigma)
        else:
            self._look_up(sigma, options["sample_sigmas"])
        self.phase_index = self.lever.phase_index(self.step)

    def _look_up(self, sigma: float, schedule: Tensor) -> None:
        if schedule is not self.schedule:
            self.schedule, self.levels = schedule, schedule.tolist()
            self.run += 1
        self.step = place_in(self.levels, sigma)
        self.part = self.parts.at(self.step, len(self.levels) - 1)

    def _count(self, sigma: float) -> None:
        if sigma > self.sigma * ROUNDING:
            self.run, self.step = self.run + 1, 0
        elif sigma * ROUNDING < self.sigma:
            self.step += 1
        self.sigma = sigma
        if self.parts.cuts:
            self.part = self.parts.part_after(sum(sigma <= cut for cut in self._known_cuts()))

    def _known_cuts(self) -> Sequence[float]:
        if self.cuts is None:
            remedy = "Leave start and stop out, or update the host"
            raise self.lever.window_error("in a host that does not tell its schedule", remedy)
        return self.cuts

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"call": None, "schedule": None}


def place_in(schedule: list[float], sigma: float) -> int:
    """The step that a noise level belongs to: that of the lowest level of the schedule which is not below it."""
    passed = sum(sigma <= level * ROUNDING for level in schedule)
    return min(max(passed, 1), max(len(schedule) - 1, 1)) - 1
